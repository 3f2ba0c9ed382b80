// FP8 products with SwiGLU as epilogue: tiles in swapped order.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_swiglu_swapped(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                         int sm_count, cudaStream_t stream) {
  return launch_float8_matching<Float8GateUpSwappedTile<64, 16>, Float8GateUpSwappedTile<64, 32>,
                                Float8GateUpSwappedTile<64, 48>, Float8GateUpSwappedTile<64, 64>,
                                Float8GateUpSwappedTile<128, 16>, Float8GateUpSwappedTile<128, 32>,
                                Float8GateUpSwappedTile<128, 48>, Float8GateUpSwappedTile<128, 64>,
                                Float8GateUpSwappedTile<128, 96>, Float8GateUpSwappedTile<128, 128>,
                                Float8GateUpSwappedTile<128, 128, 2>,
                                Float8GateUpSwappedTile<192, 16>, Float8GateUpSwappedTile<192, 32>,
                                Float8GateUpSwappedTile<192, 48>, Float8GateUpSwappedTile<192, 64>,
                                Float8GateUpSwappedTile<192, 96>, Float8GateUpSwappedTile<192, 128>,
                                Float8GateUpSwappedTile<192, 128, 2>>(args, config, sm_count,
                                                                      stream);
}

}  // namespace slimexx::kernels
