// Tiles of 128 tokens, plain order: two cooperative warpgroups.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_128(const GemmArgs& args, const GemmConfig& config, int sm_count,
                             cudaStream_t stream) {
  return launch_matching<PlainTile<128, 256, 2>, PlainTile<128, 256>, PlainTile<128, 224>,
                         PlainTile<128, 208>, PlainTile<128, 192>, PlainTile<128, 160>,
                         PlainTile<128, 144>, PlainTile<128, 128>, PlainTile<128, 112>,
                         PlainTile<128, 96>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
