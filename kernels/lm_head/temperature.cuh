// Logits in registers divided by the temperature of a launch: the bits of a true division.
#pragma once
#include <cuda_runtime.h>

namespace slimexx::kernels::lm_head {

// Logits of sizes between these, by temperatures that the family takes (products.h), neither over-
// nor underflow anywhere on the short way.
constexpr float kLeastLogit = 0x1p-60f;
constexpr float kLargestLogit = 0x1p60f;

struct Temperature {
  float value = 1.0f;
  float reciprocal = 1.0f;  // 1 / value, rounded to nearest
};

// One correction makes the quotient faithful, and then, the reciprocal being correctly rounded, a
// second makes it the correctly rounded one (Markstein).
__device__ __forceinline__ float divide_in_range(float x, Temperature t) {
  float q = __fmul_rn(x, t.reciprocal);
  q = __fmaf_rn(__fmaf_rn(-t.value, q, x), t.reciprocal, q);
  return __fmaf_rn(__fmaf_rn(-t.value, q, x), t.reciprocal, q);
}

// NaN is not asked for: it comes out of either division as NaN.
template <int kCount>
__device__ __forceinline__ bool all_in_range(const float (&logits)[kCount]) {
  float least[4], largest[4];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float size = fabsf(logits[i]);
    least[i % 4] = i < 4 ? size : fminf(least[i % 4], size);
    largest[i % 4] = i < 4 ? size : fmaxf(largest[i % 4], size);
  }
  return fminf(fminf(least[0], least[1]), fminf(least[2], least[3])) >= kLeastLogit &&
         fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3])) <= kLargestLogit;
}

template <int kCount>
__device__ __forceinline__ void divide_logits(float (&logits)[kCount], Temperature t) {
  if (all_in_range(logits)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) logits[i] = divide_in_range(logits[i], t);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) logits[i] = __fdiv_rn(logits[i], t.value);
  }
}

}  // namespace slimexx::kernels::lm_head
