// Grouped FP8 products with SwiGLU as epilogue.
#include "kernels/float8/grouped/launch.cuh"

namespace slimexx::kernels {

const char* launch_grouped_float8_swiglu(const Fp8GroupedGemmArgs& args,
                                         const Fp8GemmConfig& config, int sm_count,
                                         cudaStream_t stream) {
  return launch_grouped_float8_matching<
      Float8GateUpPlainTile<192, 128, 2>, Float8GateUpPlainTile<128, 128, 2>,
      Float8GateUpPlainTile<128, 128>, Float8GateUpSwappedTile<64, 16>,
      Float8GateUpSwappedTile<64, 32>, Float8GateUpSwappedTile<64, 64>,
      Float8GateUpSwappedTile<128, 16>, Float8GateUpSwappedTile<128, 32>,
      Float8GateUpSwappedTile<128, 64>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
