#include "kernels/ranks/peer_barrier.cuh"

namespace slimexx::kernels {
namespace {

__global__ void __launch_bounds__(kMostPeers) barrier_kernel(const PeerWindows windows) {
  peers::meet(windows);
}

}  // namespace

const char* queue_peer_barrier(const PeerWindows& windows, cudaStream_t stream) {
  if (const char* fault = peers::find_fault(windows)) return fault;
  if (!windows.waits) return nullptr;
  barrier_kernel<<<1, kMostPeers, 0, stream>>>(windows);
  return peers::name_error(cudaGetLastError());
}

}  // namespace slimexx::kernels
