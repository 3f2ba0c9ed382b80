// Variants in plain order with one warpgroup: tiles of 64 tokens.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_narrow_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                     cudaStream_t stream) {
  return launch_matching<
      GemmTile<false, 1, 24, 1>, GemmTile<false, 1, 32, 1>, GemmTile<false, 1, 40, 1>,
      GemmTile<false, 1, 48, 1>, GemmTile<false, 1, 64, 1>, GemmTile<false, 1, 80, 1>,
      GemmTile<false, 1, 96, 1>, GemmTile<false, 1, 128, 1>, GemmTile<false, 1, 144, 1>,
      GemmTile<false, 1, 160, 1>, GemmTile<false, 1, 192, 1>, GemmTile<false, 1, 208, 1>,
      GemmTile<false, 1, 256, 1>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
