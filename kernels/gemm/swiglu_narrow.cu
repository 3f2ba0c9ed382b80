// Products that end in SwiGLU: tiles in plain order, 64 tokens.
#include "kernels/gemm/swiglu_launch.cuh"

namespace slimexx::kernels {

const char* launch_narrow_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                 cudaStream_t stream) {
  return launch_matching_swiglu(NarrowSwigluTiles{}, args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
