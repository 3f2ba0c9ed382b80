// Shared by the gradients of recomputed and of kept logits: the division by the temperature, and
// the arguments of vocabulary/logit_gradient.cuh.
#pragma once
#include "kernels/lm_head/temperature.cuh"
#include "kernels/vocabulary/logit_gradient.cuh"
#include "slimexx/kernels/lm_head.h"

namespace slimexx::kernels::lm_head {

using vocabulary::GradientRow;
using vocabulary::GradientRows;

// Whether divide_ordinary may be used for this row's logits, if all_moderate() holds for them.
__device__ __forceinline__ bool is_ordinary(const GradientRow& row) {
  return fabsf(row.lse) >= kLeastShift;
}

inline GradientRows list_gradient_rows(const LmHeadGradient& g) {
  return {g.lse, g.entropies, g.dlog_probs, g.dentropies, g.targets};
}

template <int kCount>
__device__ __forceinline__ void divide_logits(float (&logits)[kCount], bool ordinary_rows,
                                              Temperature temperature) {
  if (ordinary_rows && all_moderate(logits)) {
#pragma unroll
    for (float& x : logits) x = divide_ordinary(x, temperature);
  } else {
#pragma unroll
    for (float& x : logits) x = divide(x, temperature);
  }
}

}  // namespace slimexx::kernels::lm_head
