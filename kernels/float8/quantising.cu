// FP8 products that quantise few rows of x themselves.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_quantising(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                     int sm_count, cudaStream_t stream) {
  return launch_float8_matching<
      QuantisingTile<Float8SwappedTile<64, 8>>, QuantisingTile<Float8SwappedTile<64, 16>>,
      QuantisingTile<Float8SwappedTile<128, 8>>, QuantisingTile<Float8SwappedTile<128, 16>>,
      QuantisingTile<Float8SwappedTile<192, 8>>, QuantisingTile<Float8SwappedTile<192, 16>>>(
      args, config, sm_count, stream);
}

const char* launch_float8_swiglu_quantising(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                            int sm_count, cudaStream_t stream) {
  return launch_float8_matching<QuantisingTile<Float8GateUpSwappedTile<64, 16>>,
                                QuantisingTile<Float8GateUpSwappedTile<128, 16>>,
                                QuantisingTile<Float8GateUpSwappedTile<192, 16>>>(args, config,
                                                                                  sm_count, stream);
}

}  // namespace slimexx::kernels
