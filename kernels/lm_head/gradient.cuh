// The gradient by a logit, in the product's registers or from kept logits. The arithmetic is that
// of log_probs_backward to the bit:
//   d = p * (-dlp - dh * (log p + H)), 0 where p is; plus dlp at the target; by 1 / temperature.
#pragma once
#include "kernels/lm_head/temperature.cuh"
#include "kernels/vocabulary/tile_sum.cuh"
#include "slimexx/kernels/lm_head.h"

namespace slimexx::kernels::lm_head {

// The constants of a row.
struct GradientRow {
  float lse = 1.0f, entropy = 0.0f, dlp = 0.0f, dh = 0.0f;
  int target = -1;

  // Without what the target adds, and before the division by the temperature.
  __device__ __forceinline__ float gradient(float z) const {
    const float log_p = __fadd_rn(z, -lse);
    const float p = vocabulary::fixed_exp(log_p);
    const float d = __fmul_rn(p, __fmaf_rn(-dh, __fadd_rn(log_p, entropy), -dlp));
    return p == 0.0f ? 0.0f : d;  // log_p may be -inf
  }
  // The short division serves its logits, where they are moderate.
  __device__ __forceinline__ bool is_ordinary() const { return fabsf(lse) >= kLeastShift; }
};

// All [rows]; entropies null together with dentropies.
struct GradientRows {
  const float* lse;
  const float* entropies;
  const float* dlog_probs;
  const float* dentropies;
  const int32_t* targets;

  __device__ __forceinline__ GradientRow load(int64_t row) const {
    GradientRow out;
    out.lse = lse[row];
    out.dlp = dlog_probs[row];
    out.target = targets[row];
    if (dentropies != nullptr) {
      out.entropy = entropies[row];
      out.dh = dentropies[row];
    }
    return out;
  }
};

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
