// Tiles of up to 64 features, operands swapped: one warpgroup.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_swapped_64(const GemmArgs& args, const GemmConfig& config, int sm_count,
                              cudaStream_t stream) {
  return launch_matching<SwappedTile<64, 32>, SwappedTile<64, 48>, SwappedTile<64, 64>,
                         SwappedTile<64, 96>, SwappedTile<64, 128>, SwappedTile<64, 160>,
                         SwappedTile<64, 192>, SwappedTile<64, 256>>(args, config, sm_count,
                                                                     stream);
}

}  // namespace slimexx::kernels
