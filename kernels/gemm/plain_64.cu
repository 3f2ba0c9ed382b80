// Tiles of 64 tokens, plain order: one warpgroup.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_64(const GemmArgs& args, const GemmConfig& config, int sm_count,
                            cudaStream_t stream) {
  return launch_matching<PlainTile<64, 24>, PlainTile<64, 32>, PlainTile<64, 40>, PlainTile<64, 48>,
                         PlainTile<64, 64>, PlainTile<64, 80>, PlainTile<64, 96>,
                         PlainTile<64, 128>, PlainTile<64, 144>, PlainTile<64, 160>,
                         PlainTile<64, 192>, PlainTile<64, 208>, PlainTile<64, 256>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
