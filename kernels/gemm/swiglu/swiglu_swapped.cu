// Products with SwiGLU as epilogue: operands swapped.
#include "kernels/gemm/swiglu/swiglu_launch.cuh"

namespace slimexx::kernels {

const char* launch_swiglu_swapped(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                  cudaStream_t stream) {
  return launch_matching_swiglu(SwigluSwapped{}, args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
