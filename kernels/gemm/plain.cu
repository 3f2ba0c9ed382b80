// Variants in plain order, for many tokens.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                              cudaStream_t stream) {
  return launch_matching<GemmTile<false, 2, 256, 2>, GemmTile<false, 2, 256, 1>,
                         GemmTile<false, 2, 128, 1>, GemmTile<false, 2, 128, 2>>(args, config,
                                                                                 sm_count, stream);
}

}  // namespace slimexx::kernels
