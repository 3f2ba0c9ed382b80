// Variants in plain order with two warpgroups: tiles of 128 tokens.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                              cudaStream_t stream) {
  return launch_matching<GemmTile<false, 2, 256, 2>, GemmTile<false, 2, 256, 1>,
                         GemmTile<false, 2, 224, 1>, GemmTile<false, 2, 208, 1>,
                         GemmTile<false, 2, 192, 1>, GemmTile<false, 2, 160, 1>,
                         GemmTile<false, 2, 144, 1>, GemmTile<false, 2, 128, 1>,
                         GemmTile<false, 2, 112, 1>, GemmTile<false, 2, 96, 1>>(args, config,
                                                                                sm_count, stream);
}

}  // namespace slimexx::kernels
