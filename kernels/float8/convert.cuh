// Conversions of pairs of e4m3 by the hardware. They equal tensor::f32_to_f8_e4m3 and its inverse.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

namespace slimexx::kernels {

// Rounds two floats to nearest even, saturating; NaN becomes 0x7F. In memory `low` has the lower
// address.
__device__ __forceinline__ uint32_t pack_f8(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// Exact.
__device__ __forceinline__ float2 widen_f8(uint32_t pair) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

}  // namespace slimexx::kernels
