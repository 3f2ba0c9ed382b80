// Copies of 16 bytes from global to shared memory that a thread starts and does not wait for
// (PTX cp.async): rows that lie anywhere. They write through the generic proxy: where tensor cores
// read, a fence_shared_for_async() must stand behind the wait.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

// `bytes`: 16, or 0, which writes zeros and reads nothing.
__device__ __forceinline__ void copy_chunk(uint32_t to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

// One arrival of this thread, once all copies that it has started so far are complete.
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace slimexx::kernels
