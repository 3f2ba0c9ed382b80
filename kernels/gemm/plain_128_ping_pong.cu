// Tiles of 128 tokens, plain order, ping-pong: two warpgroups that compute alternate tiles.
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

const char* launch_plain_128_ping_pong(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                       cudaStream_t stream) {
  return launch_matching<PingPongTile<160>, PingPongTile<192>>(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
