// Variants with operands swapped and two warpgroups, which share the tokens they read.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_wide_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                     cudaStream_t stream) {
  return launch_matching<GemmTile<true, 2, 96, 1>, GemmTile<true, 2, 128, 1>,
                         GemmTile<true, 2, 160, 1>, GemmTile<true, 2, 192, 1>>(args, config,
                                                                               sm_count, stream);
}

}  // namespace slimexx::kernels
