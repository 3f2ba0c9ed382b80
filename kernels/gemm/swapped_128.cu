// Tiles of up to 128 features, operands swapped: two warpgroups that share the tokens.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_swapped_128(const GemmArgs& args, const GemmConfig& config, int sm_count,
                               cudaStream_t stream) {
  return launch_matching<SwappedTile<128, 96>, SwappedTile<128, 128>, SwappedTile<128, 160>,
                         SwappedTile<128, 192>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
