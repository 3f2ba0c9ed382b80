// Reads and writes pairs of floats in shared memory by 32-bit shared addresses.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

// Use it only for data written before the last barrier: the compiler may move this read before the
// thread's own ordinary stores.
__device__ __forceinline__ float2 read_pair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
  return x;
}
__device__ __forceinline__ void write_pair(uint32_t address, float2 x) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x.x), "f"(x.y) : "memory");
}

}  // namespace slimexx::kernels
