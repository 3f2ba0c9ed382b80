// Divides logits in registers by the temperature. The result has the bits of a true division, which
// costs more for ordinary operands.
#pragma once
#include <cuda_runtime.h>

namespace slimexx::kernels::lm_head {

struct Temperature {
  float value = 1.0f;
  float reciprocal = 1.0f;  // 1 / value, rounded to nearest
};

__device__ __forceinline__ float divide(float x, Temperature t) { return __fdiv_rn(x, t.value); }

// The estimate x / t is corrected twice by its remainder. The first correction makes the quotient
// faithful (within 1 ulp). Because the reciprocal is correctly rounded, the second correction makes
// the quotient correctly rounded (Markstein), if nothing underflows or overflows. For temperatures
// from 2^-10 to 2^10 (products.h) this gives:
// - |x| >= 2^-90: the true quotient, or NaN if something overflowed or was infinite;
// - |x| < 2^-90: within 1 ulp of the true quotient, and below 2^-80. Subtracting a shift of at
//   least kLeastShift then gives the same number as with the true quotient.
constexpr float kLeastShift = 0x1p-50f;

__device__ __forceinline__ float divide_ordinary(float x, Temperature t) {
  float q = __fmul_rn(x, t.reciprocal);
  q = __fmaf_rn(__fmaf_rn(-t.value, q, x), t.reciprocal, q);
  return __fmaf_rn(__fmaf_rn(-t.value, q, x), t.reciprocal, q);
}

// Whether all operands are finite and small enough that no quotient overflows.
template <int kCount>
__device__ __forceinline__ bool all_moderate(const float (&logits)[kCount]) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i % 4] = __fmaf_rn(logits[i], 0x1p20f, sums[i % 4]);
  return fabsf(sums[0]) + fabsf(sums[1]) + fabsf(sums[2]) + fabsf(sums[3]) < __builtin_inff();
}

}  // namespace slimexx::kernels::lm_head
