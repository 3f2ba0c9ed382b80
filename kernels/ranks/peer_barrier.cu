#include "kernels/ranks/peer_barrier.cuh"

namespace slimexx::kernels {
namespace {

__global__ void __launch_bounds__(kMostPeers) barrier_kernel(const PeerRegions ranks) {
  peers::meet(ranks);
}

}  // namespace

const char* queue_peer_barrier(const PeerRegions& ranks, cudaStream_t stream) {
  if (const char* fault = peers::find_fault(ranks)) return fault;
  if (!ranks.waits) return nullptr;
  barrier_kernel<<<1, kMostPeers, 0, stream>>>(ranks);
  return peers::name_error(cudaGetLastError());
}

}  // namespace slimexx::kernels
