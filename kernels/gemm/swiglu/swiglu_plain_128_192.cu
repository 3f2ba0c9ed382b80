// Products with SwiGLU as epilogue: tiles of 128 and 192 tokens, plain order.
#include "kernels/gemm/swiglu/swiglu_launch.cuh"

namespace slimexx::kernels {

const char* launch_swiglu_plain_128_192(const GemmArgs& args, const GemmConfig& config,
                                        int sm_count, cudaStream_t stream) {
  return launch_matching_swiglu(SwigluPlain128And192{}, args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
