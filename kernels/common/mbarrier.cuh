// Barriers in shared memory that count arrivals and bytes of bulk copies (PTX mbarrier).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

// With SLX_BOUNDED_WAITS (on in debug builds) a wait of more than 20 s traps, so that a pipeline
// error ends in a launch failure instead of a hung device.
#if !defined(NDEBUG) && !defined(SLX_BOUNDED_WAITS)
#define SLX_BOUNDED_WAITS 1
#endif

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Barriers and buffers are pointers or, to save registers, 32-bit shared addresses.
__device__ __forceinline__ uint32_t shared_address(uint32_t address) { return address; }

template <class Barrier>
__device__ __forceinline__ void init_mbarrier(Barrier bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster. A
// block (or cluster) barrier must follow before any other thread uses them.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <class Barrier>
__device__ __forceinline__ void arrive(Barrier bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

// Arrives at the barrier at bar's offset in the shared memory of block `rank`. The arrival has
// release semantics at block scope only: at cluster scope it would wait for all memory operations
// (0.9 us each time), and a consumer that releases a buffer has written nothing that the peer
// reads.
template <class Barrier>
__device__ __forceinline__ void arrive_at_rank(Barrier bar, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(bar)),
      "r"(rank)
      : "memory");
}

// Arrives once; the phase also waits for `bytes` of bulk copies.
template <class Barrier>
__device__ __forceinline__ void arrive_expect_bytes(Barrier bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
               "r"(bytes)
               : "memory");
}

// Makes the current phase also wait for `bytes` of bulk copies, without an arrival.
template <class Barrier>
__device__ __forceinline__ void expect_bytes(Barrier bar, uint32_t bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
      "r"(bytes)
      : "memory");
}

template <class Barrier>
__device__ __forceinline__ bool try_wait(Barrier bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(shared_address(bar)), "r"(parity)
      : "memory");
  return done != 0;
}

// Returns once the phase of the given parity has completed.
template <class Barrier>
__device__ __forceinline__ void wait(Barrier bar, uint32_t parity) {
#ifdef SLX_BOUNDED_WAITS
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  while (!try_wait(bar, parity)) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start > 20'000'000'000ull) __trap();
  }
#else
  while (!try_wait(bar, parity)) {
  }
#endif
}

// The place of a thread or warp in a ring of pipeline stages: the stage, and the parity of the
// round.
struct StageCursor {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// StageCursor for a constant number of stages.
template <int kStages>
struct RingCursor {
  uint32_t stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace slimexx::kernels
