// Tiles of up to 192 features, operands swapped: three warpgroups.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_swapped_192(const GemmArgs& args, const GemmConfig& config, int sm_count,
                               cudaStream_t stream) {
  return launch_matching<SwappedTile<192, 128>, SwappedTile<192, 160>, SwappedTile<192, 192>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
