// Variants in plain order whose two warpgroups take tiles of 128 tokens in turns.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_alternating_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                    cudaStream_t stream) {
  return launch_matching<GemmTile<false, 2, 160, 2, true>, GemmTile<false, 2, 192, 2, true>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
