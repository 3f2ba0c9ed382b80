// Tiles of 192 tokens, plain order: three cooperative warpgroups.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_192(const GemmArgs& args, const GemmConfig& config, int sm_count,
                             cudaStream_t stream) {
  return launch_matching<PlainTile<192, 128>, PlainTile<192, 192>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
