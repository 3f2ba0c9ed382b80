// FP8 tiles in plain order: 64 tokens per warpgroup.
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

const char* launch_float8_plain(const Fp8GemmArgs& args, const Fp8GemmConfig& config, int sm_count,
                                cudaStream_t stream) {
  return launch_float8_matching<
      Float8PlainTile<192, 128, 2>, Float8PlainTile<192, 128>, Float8PlainTile<128, 192, 2>,
      Float8PlainTile<128, 128, 2>, Float8PlainTile<128, 128>, Float8PlainTile<128, 96>,
      Float8PlainTile<128, 64>, Float8PlainTile<64, 192>, Float8PlainTile<64, 128>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
