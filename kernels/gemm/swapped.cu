// Variants with operands swapped and one warpgroup of 64 features.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                cudaStream_t stream) {
  return launch_matching<GemmTile<true, 1, 32, 1>, GemmTile<true, 1, 48, 1>,
                         GemmTile<true, 1, 64, 1>, GemmTile<true, 1, 96, 1>,
                         GemmTile<true, 1, 128, 1>, GemmTile<true, 1, 160, 1>,
                         GemmTile<true, 1, 192, 1>, GemmTile<true, 1, 256, 1>>(args, config,
                                                                               sm_count, stream);
}

}  // namespace slimexx::kernels
