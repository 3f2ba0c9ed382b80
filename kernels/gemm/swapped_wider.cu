// Variants with operands swapped and three warpgroups.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_wider_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                      cudaStream_t stream) {
  return launch_matching<GemmTile<true, 3, 128, 1>, GemmTile<true, 3, 160, 1>,
                         GemmTile<true, 3, 192, 1>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
