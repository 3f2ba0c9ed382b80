// Variants with operands swapped and one warpgroup of 64 features, for a handful of tokens.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                cudaStream_t stream) {
  return launch_matching<
      GemmTile<true, 1, 8, 1>, GemmTile<true, 1, 16, 1>, GemmTile<true, 1, 32, 1>,
      GemmTile<true, 1, 32, 2>, GemmTile<true, 1, 64, 1>, GemmTile<true, 1, 64, 2>,
      GemmTile<true, 1, 64, 4>, GemmTile<true, 1, 128, 1>, GemmTile<true, 1, 128, 2>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
