// Asynchronous copies of 16 bytes from global to shared memory by single threads (PTX cp.async),
// for rows at arbitrary addresses. The copies write through the generic proxy: before tensor cores
// read the data, the wait must be followed by fence_shared_for_async().
#pragma once
#include <cstdint>

namespace slimexx::kernels {

// `bytes`: 16, or 0, which writes zeros and reads nothing.
__device__ __forceinline__ void copy_chunk(uint32_t to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

// This thread arrives at the barrier (one arrival) when all copies that it has started are
// complete.
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace slimexx::kernels
