// FP8 products with SwiGLU as epilogue: tiles in plain order.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_swiglu_plain(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                       int sm_count, cudaStream_t stream) {
  return launch_float8_matching<Float8GateUpPlainTile<192, 128, 2>, Float8GateUpPlainTile<192, 128>,
                                Float8GateUpPlainTile<128, 128, 2>,
                                Float8GateUpPlainTile<128, 128>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
