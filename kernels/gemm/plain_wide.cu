// Variants in plain order with three warpgroups: tiles of 192 tokens.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_wide_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                   cudaStream_t stream) {
  return launch_matching<GemmTile<false, 3, 128, 1>, GemmTile<false, 3, 192, 1>>(args, config,
                                                                                 sm_count, stream);
}

}  // namespace slimexx::kernels
