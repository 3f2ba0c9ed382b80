// FP8 tiles of up to 64 features, swapped order: one warpgroup.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_swapped_64(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                     int sm_count, cudaStream_t stream) {
  return launch_float8_matching<Float8SwappedTile<64, 8>, Float8SwappedTile<64, 16>,
                                Float8SwappedTile<64, 24>, Float8SwappedTile<64, 32>,
                                Float8SwappedTile<64, 48>, Float8SwappedTile<64, 64>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
