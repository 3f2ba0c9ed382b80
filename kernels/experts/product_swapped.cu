// Grouped products with few rows per expert: operands are swapped, so the weights are the M
// operand.
#include "kernels/experts/launch.cuh"

namespace slimexx::kernels {

const char* launch_grouped_swapped(const GroupedGemmArgs& args, const GemmConfig& config,
                                   int sm_count, cudaStream_t stream) {
  return launch_matching_grouped<GroupedSwappedTile<64, 32>, GroupedSwappedTile<64, 64>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
