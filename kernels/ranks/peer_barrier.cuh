// The meeting of ranks in their control: an epoch of one's own, and a flag of each rank,
// which holds the epoch that this rank has reached. Once for whole launches, and once for each
// thread block, which meets the block of its number in the other ranks' launches.
#pragma once
#include <cuda_runtime.h>

#include "slimexx/kernels/peers.h"

namespace slimexx::kernels::peers {

inline constexpr int kEpochAt = 0, kFlagsAt = 256, kHeaderAt = 768;
static_assert(kFlagsAt + 4 * kMostPeers <= kHeaderAt);

// Of a thread block that meets others: its epoch, and by rank a flag and a place.
inline constexpr int kMostPeerBlocks = 64;
struct BlockControl {
  int64_t places[kMostPeers];
  int flags[kMostPeers];
  int epoch, unused[3];
};
inline constexpr int kBlocksAt = 1024;
static_assert(kBlocksAt + sizeof(BlockControl) * kMostPeerBlocks <= kPeerControlBytes);

__device__ __forceinline__ void release(int* flag, int value) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ int acquire(const int* flag) {
  int value;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// The host's word is far away: it is looked at now and then.
__device__ __forceinline__ void await(const PeerRegions& p, const int* flag, int epoch) {
  for (int tries = 1; acquire(flag) - epoch < 0; ++tries) {
    if (tries % 1024 == 0 && *static_cast<const volatile int*>(p.cancelled) != 0) break;
  }
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
    await(p, reinterpret_cast<int*>(own + kFlagsAt) + peer, epoch);
  }
  if (threadIdx.x == 0) *reinterpret_cast<int*>(own + kEpochAt) = epoch;
  __syncthreads();
}

__device__ __forceinline__ BlockControl* block_control(const PeerRegions& p, int rank) {
  return reinterpret_cast<BlockControl*>(p.control[rank] + kBlocksAt) + blockIdx.x;
}

// By all threads of a thread block, at least as many as ranks; every rank launches as many blocks.
// Returns when the blocks of this number have come at all ranks, and what their launches' streams
// had done before, and these blocks since, is seen. Each leaves its place to the others where one
// is given. The next meeting must not give one: another rank may be there before this one has read.
__device__ __forceinline__ void meet_blocks(const PeerRegions& p, const int64_t* place = nullptr) {
  BlockControl* own = block_control(p, p.rank);
  const int epoch = own->epoch + 1;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < p.size) {
    BlockControl* there = block_control(p, peer);
    if (place != nullptr) *static_cast<volatile int64_t*>(&there->places[p.rank]) = *place;
    __threadfence_system();  // also of what this block's other threads wrote
    release(&there->flags[p.rank], epoch);
    await(p, &own->flags[peer], epoch);
  }
  __syncthreads();
  if (threadIdx.x == 0) own->epoch = epoch;
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
