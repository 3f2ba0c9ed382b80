// Rotates one pair of a head's elements.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "slimexx/kernels/rows.h"

namespace slimexx::kernels::rows {

// Address of element `at` of a head.
__device__ __forceinline__ __nv_bfloat16* element_at(const HeadRows& x, int64_t token, int64_t head,
                                                     int64_t at) {
  return static_cast<__nv_bfloat16*>(x.data) + token * x.token_stride + head * x.head_stride + at;
}

// Rotates pair `pair` of the first rotary_dim elements by the arithmetic of head_lanes.cuh, in
// which the first product of each sum is not rounded. Later pairs, of neighbouring elements, are
// copied. x may be y.
template <bool kBack>
__device__ __forceinline__ void rotate_pair(__nv_bfloat16* y, const __nv_bfloat16* x,
                                            const RotaryTables& t, int64_t token, int pair) {
  const int rotated = static_cast<int>(t.rotary_dim) / 2;
  const bool neighbours = t.interleaved || pair >= rotated;
  const int first = neighbours ? 2 * pair : pair, second = first + (neighbours ? 1 : rotated);
  if (pair >= rotated) {
    y[first] = x[first];
    y[second] = x[second];
    return;
  }
  const float a = __bfloat162float(x[first]), b = __bfloat162float(x[second]);
  const int64_t angle = static_cast<int64_t>(t.positions[token]) * rotated + pair;
  const float c = t.cos[angle], s = kBack ? -t.sin[angle] : t.sin[angle];
  y[first] = __float2bfloat16_rn(__fmaf_rn(a, c, -__fmul_rn(b, s)));
  y[second] = __float2bfloat16_rn(__fmaf_rn(b, c, __fmul_rn(a, s)));
}

}  // namespace slimexx::kernels::rows
