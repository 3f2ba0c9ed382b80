// Products that end in SwiGLU: tiles with operands swapped.
#include "kernels/gemm/swiglu_launch.cuh"

namespace slimexx::kernels {

const char* launch_swapped_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                  cudaStream_t stream) {
  return launch_matching_swiglu(SwappedSwigluTiles{}, args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
