// Pairs of bf16 in one 32-bit register: rounding from and widening to float, the same in all
// kernels.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

// Rounds two floats to nearest even; in memory `low` has the lower address.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Exact: a bf16 is the upper half of the float of the same value.
__device__ __forceinline__ float widen_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float widen_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

}  // namespace slimexx::kernels
