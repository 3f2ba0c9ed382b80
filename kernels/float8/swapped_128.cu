// FP8 tiles of up to 128 features, swapped order: two warpgroups.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_swapped_128(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                      int sm_count, cudaStream_t stream) {
  return launch_float8_matching<
      Float8SwappedTile<128, 8>, Float8SwappedTile<128, 16>, Float8SwappedTile<128, 24>,
      Float8SwappedTile<128, 32>, Float8SwappedTile<128, 48>, Float8SwappedTile<128, 64>,
      Float8SwappedTile<128, 96>, Float8SwappedTile<128, 128>, Float8SwappedTile<128, 128, 2>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
