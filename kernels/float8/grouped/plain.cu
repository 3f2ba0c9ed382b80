// Grouped FP8 products of many rows per expert.
#include "kernels/float8/grouped/launch.cuh"

namespace slimexx::kernels {

const char* launch_grouped_float8_plain(const Fp8GroupedGemmArgs& args, const Fp8GemmConfig& config,
                                        int sm_count, cudaStream_t stream) {
  return launch_grouped_float8_matching<Float8PlainTile<192, 128, 2>, Float8PlainTile<128, 192, 2>,
                                        Float8PlainTile<128, 128, 2>, Float8PlainTile<128, 128>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
