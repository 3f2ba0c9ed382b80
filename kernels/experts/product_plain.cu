// Grouped products with many rows per expert.
#include "kernels/experts/launch.cuh"

namespace slimexx::kernels {

const char* launch_grouped_plain(const GroupedGemmArgs& args, const GemmConfig& config,
                                 int sm_count, cudaStream_t stream) {
  return launch_matching_grouped<GroupedPlainTile<128, 256>, GroupedPlainTile<128, 192>,
                                 GroupedPlainTile<128, 128>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
