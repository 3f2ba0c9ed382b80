// Bulk copies between global and shared memory by the copy engine (TMA; PTX cp.async.bulk): boxes
// of a tensor that a tensor map describes, and contiguous bytes. Coordinates count elements, the
// innermost dimension first. Elements outside the tensor are loaded as zeros, whose bytes the
// barrier counts too, and are never stored.
#pragma once
#include <cuda.h>

#include "kernels/common/mbarrier.cuh"

namespace slimexx::kernels {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

template <class Buffer, class Barrier>
__device__ __forceinline__ void load_box(Buffer dst, const CUtensorMap* map, Barrier bar, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// L2 eviction policies for the lines that a copy reads, in the encoding of PTX createpolicy.
constexpr uint64_t kEvictNormal = 0x1000000000000000;
constexpr uint64_t kEvictFirst = 0x12F0000000000000;

template <class Buffer, class Barrier>
__device__ __forceinline__ void load_box_hinted(Buffer dst, const CUtensorMap* map, Barrier bar,
                                                int x, int y, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

template <class Buffer, class Barrier>
__device__ __forceinline__ void load_box_hinted(Buffer dst, const CUtensorMap* map, Barrier bar,
                                                int x, int y, int z, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "l"(policy)
      : "memory");
}

// Loads the box into every block of the cluster whose bit is set in `ranks`: at dst's offset, with
// its bytes counted by the barrier at bar's offset in that block.
template <class Buffer, class Barrier>
__device__ __forceinline__ void load_box_multicast(Buffer dst, const CUtensorMap* map, Barrier bar,
                                                   int x, int y, uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(dst)),
      "l"(map), "r"(x), "r"(y), "r"(shared_address(bar)), "h"(ranks)
      : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* src, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(x), "r"(y), "r"(shared_address(src))
      : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* src, int x, int y,
                                          int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
      "r"(x), "r"(y), "r"(z), "r"(shared_address(src))
      : "memory");
}

// Loads contiguous bytes. Addresses and size must be multiples of 16.
template <class Buffer, class Barrier>
__device__ __forceinline__ void load_bytes(Buffer dst, const void* src, uint32_t bytes,
                                           Barrier bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(dst)),
      "l"(src), "r"(bytes), "r"(shared_address(bar))
      : "memory");
}

__device__ __forceinline__ void store_bytes(void* dst, const void* src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst),
               "r"(shared_address(src)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kPending groups of this thread's stores still read shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all of this thread's stores are complete in global memory.
__device__ __forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders this thread's ordinary writes to shared memory before later reads by the copy engine or
// the tensor cores. If another thread starts these reads, a barrier must follow the fence.
__device__ __forceinline__ void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace slimexx::kernels
