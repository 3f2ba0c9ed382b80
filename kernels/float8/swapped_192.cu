// FP8 tiles of up to 192 features, swapped order: three warpgroups.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_swapped_192(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                      int sm_count, cudaStream_t stream) {
  return launch_float8_matching<
      Float8SwappedTile<192, 8>, Float8SwappedTile<192, 16>, Float8SwappedTile<192, 24>,
      Float8SwappedTile<192, 32>, Float8SwappedTile<192, 48>, Float8SwappedTile<192, 64>,
      Float8SwappedTile<192, 96>, Float8SwappedTile<192, 128>, Float8SwappedTile<192, 128, 2>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
