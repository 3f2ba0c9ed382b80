// Products that end in SwiGLU: tiles in plain order, 128 tokens or more.
#include "kernels/gemm/swiglu_launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                cudaStream_t stream) {
  return launch_matching_swiglu(PlainSwigluTiles{}, args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
