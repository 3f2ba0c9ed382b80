// Logits in registers divided by the temperature of a launch: the bits of a true division, at less
// cost where the operands are ordinary.
#pragma once
#include <cuda_runtime.h>

namespace slimexx::kernels::lm_head {

struct Temperature {
  float value = 1.0f;
  float reciprocal = 1.0f;  // 1 / value, rounded to nearest
};

__device__ __forceinline__ float divide(float x, Temperature t) { return __fdiv_rn(x, t.value); }

// One correction makes the quotient faithful, and then, the reciprocal being correctly rounded, a
// second makes it the correctly rounded one (Markstein), as long as nothing under- or overflows. So
// for temperatures from 2^-10 to 2^10 (products.h):
// - |x| from 2^-90: the true quotient, or NaN where something overflowed or was infinite;
// - smaller x: a unit of the last place away at most, and below 2^-80. Subtracting something of
//   kLeastShift or more gives the same number then as with the true quotient.
constexpr float kLeastShift = 0x1p-50f;

__device__ __forceinline__ float divide_ordinary(float x, Temperature t) {
  float q = __fmul_rn(x, t.reciprocal);
  q = __fmaf_rn(__fmaf_rn(-t.value, q, x), t.reciprocal, q);
  return __fmaf_rn(__fmaf_rn(-t.value, q, x), t.reciprocal, q);
}

// No operand is infinite or large enough that a quotient might be.
template <int kCount>
__device__ __forceinline__ bool all_moderate(const float (&logits)[kCount]) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i % 4] = __fmaf_rn(logits[i], 0x1p20f, sums[i % 4]);
  return fabsf(sums[0]) + fabsf(sums[1]) + fabsf(sums[2]) + fabsf(sums[3]) < __builtin_inff();
}

}  // namespace slimexx::kernels::lm_head
