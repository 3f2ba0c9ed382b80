// Barriers between ranks. A rank's control memory holds its own epoch and one flag per rank, in
// which that rank stores the epoch that it has reached. There is one barrier for whole launches,
// and one per thread block, which synchronises with the thread block of the same index on the other
// ranks.
#pragma once
#include <cuda_runtime.h>

#include "slimexx/kernels/peers.h"

namespace slimexx::kernels::peers {

inline constexpr int kEpochAt = 0, kFlagsAt = 256, kHeaderAt = 768;
static_assert(kFlagsAt + 4 * kMostPeers <= kHeaderAt);

// Control memory of a thread block: a count of its calls and, indexed by rank, the words that the
// other ranks' thread blocks of the same index write.
inline constexpr int kMostPeerBlocks = 64;
struct BlockControl {
  uint64_t begun[kMostPeers];  // latest call that the rank has begun (low bits), and the offset of
                               // its array in its region (high bits)
  unsigned ended[kMostPeers];  // latest call that the rank has finished
  unsigned calls, unused[2];
  unsigned mails;  // calls of the low-latency protocol (peer_mail.cu)

  // The number of the next call of the low-latency protocol. Its parity selects the mail box. The
  // number is never 0, the value in lines that were never written.
  __device__ __forceinline__ unsigned next_mail() const { return mails + 1 == 0 ? 2 : mails + 1; }
};
// The call number and the array's place share one word, which arrives as a whole; with two stores,
// the reader would have to wait for both. The lowest bits of the call number are enough, because
// ranks are at most one call apart.
inline constexpr int kCallBits = 24;
inline constexpr int kBlocksAt = 1024;
inline constexpr int kMailAt = 64 << 10;
static_assert(kBlocksAt + sizeof(BlockControl) * kMostPeerBlocks <= kMailAt);
static_assert(kMailAt < kPeerControlBytes);

__device__ __forceinline__ void release(unsigned* flag, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned acquire(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ void release(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ uint64_t acquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// The flag is in host memory and slow to read, so it is read only every 1024 tries.
__device__ __forceinline__ bool was_cancelled(const PeerRegions& p, int tries) {
  return tries % 1024 == 0 && *static_cast<const volatile int*>(p.cancelled) != 0;
}
// Epochs wrap around after days of generation (each step has two barriers per layer with experts).
// They are unsigned, and their difference tells which is earlier: ranks are at most one call apart.
__device__ __forceinline__ bool is_before(unsigned epoch, unsigned other) {
  return static_cast<int>(epoch - other) < 0;
}
__device__ __forceinline__ void await(const PeerRegions& p, const unsigned* flag, unsigned epoch) {
  for (int tries = 1; is_before(acquire(flag), epoch) && !was_cancelled(p, tries); ++tries) {
  }
}

// Called by all threads of a kernel of one thread block, which has at least one thread per rank.
// Earlier kernels have finished; the fence makes their writes visible to ranks that acquire the
// flag.
__device__ __forceinline__ void meet(const PeerRegions& p) {
  if (!p.waits) return;
  char* own = p.control[p.rank];
  const unsigned epoch = *reinterpret_cast<unsigned*>(own + kEpochAt) + 1;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < p.size) {
    __threadfence_system();
    release(reinterpret_cast<unsigned*>(p.control[peer] + kFlagsAt) + p.rank, epoch);
    await(p, reinterpret_cast<unsigned*>(own + kFlagsAt) + peer, epoch);
  }
  if (threadIdx.x == 0) *reinterpret_cast<unsigned*>(own + kEpochAt) = epoch;
  __syncthreads();
}

// The i-th rank after this rank, cyclically, so that every rank starts with a different peer.
__device__ __forceinline__ int rank_after(const PeerRegions& p, int i) {
  return p.rank + i < p.size ? p.rank + i : p.rank + i - p.size;
}

__device__ __forceinline__ BlockControl* block_control(const PeerRegions& p, int rank) {
  return reinterpret_cast<BlockControl*>(p.control[rank] + kBlocksAt) + blockIdx.x;
}

// begin_blocks and end_blocks are called by all threads of a thread block, which has at least one
// thread per rank. All ranks launch the same number of thread blocks; those of the same index
// synchronise.

// Publishes `place`, the offset of this rank's array, and finds the addresses of all ranks' arrays.
// On return, everything that the streams of all ranks finished before this launch is visible.
__device__ __forceinline__ void begin_blocks(const PeerRegions& p, int64_t place,
                                             char* (&arrays)[kMostPeers]) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < p.size) {
    BlockControl* own = block_control(p, p.rank);
    const uint64_t call = static_cast<uint64_t>(own->calls + 1) & ((1u << kCallBits) - 1);
    release(&block_control(p, peer)->begun[p.rank],
            static_cast<uint64_t>(place) << kCallBits | call);
    arrays[peer] = p.region[p.rank] + place;  // after a failure: any valid memory
    for (int tries = 1; !was_cancelled(p, tries); ++tries) {
      const uint64_t word = acquire(&own->begun[peer]);
      if ((word & ((1u << kCallBits) - 1)) != call) continue;
      arrays[peer] = p.region[peer] + (word >> kCallBits);
      break;
    }
  }
  __syncthreads();
}

// Returns when the thread blocks of this index on all ranks have finished their part; their writes
// are then visible.
__device__ __forceinline__ void end_blocks(const PeerRegions& p) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  BlockControl* own = block_control(p, p.rank);
  const unsigned call = own->calls + 1;
  if (peer < p.size) {
    __threadfence_system();  // also covers writes of this block's other threads
    release(&block_control(p, peer)->ended[p.rank], call);
    await(p, &own->ended[peer], call);
  }
  __syncthreads();
  if (threadIdx.x == 0) own->calls = call;
}

inline const char* find_fault(const PeerRegions& p) {
  if (p.size < 1 || p.size > kMostPeers || p.rank < 0 || p.rank >= p.size) {
    return "peers: the number of ranks must be from 1 to 64";
  }
  return p.cancelled == nullptr ? "peers: the host's cancel flag is null" : nullptr;
}
inline const char* name_error(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels::peers
