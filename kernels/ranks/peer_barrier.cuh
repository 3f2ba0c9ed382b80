// The meeting of ranks in their control: an epoch of one's own, and a flag of each rank,
// which holds the epoch that this rank has reached.
#pragma once
#include <cuda_runtime.h>

#include "slimexx/kernels/peers.h"

namespace slimexx::kernels::peers {

inline constexpr int kEpochAt = 0, kFlagsAt = 256, kHeaderAt = 768;
static_assert(kFlagsAt + 4 * kMostPeers <= kHeaderAt);

__device__ __forceinline__ void release(int* flag, int value) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ int acquire(const int* flag) {
  int value;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// By all threads of the only thread block of a kernel, at least as many as ranks. What kernels
// before this one wrote is done: the fence makes it seen by whoever acquires the flag.
__device__ __forceinline__ void meet(const PeerRegions& p) {
  if (!p.waits) return;
  char* own = p.control[p.rank];
  const int epoch = *reinterpret_cast<int*>(own + kEpochAt) + 1;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < p.size) {
    __threadfence_system();
    release(reinterpret_cast<int*>(p.control[peer] + kFlagsAt) + p.rank, epoch);
    const int* flag = reinterpret_cast<int*>(own + kFlagsAt) + peer;
    // The host's word is far away: it is looked at now and then.
    for (int tries = 1; acquire(flag) - epoch < 0; ++tries) {
      if (tries % 1024 == 0 && *static_cast<const volatile int*>(p.cancelled) != 0) break;
    }
  }
  if (threadIdx.x == 0) *reinterpret_cast<int*>(own + kEpochAt) = epoch;
  __syncthreads();
}

inline const char* find_fault(const PeerRegions& p) {
  if (p.size < 1 || p.size > kMostPeers || p.rank < 0 || p.rank >= p.size) {
    return "peers: from 1 to 64 ranks";
  }
  return p.cancelled == nullptr ? "peers: no word of the host's" : nullptr;
}
inline const char* name_error(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels::peers
