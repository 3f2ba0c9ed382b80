// The gradient of the loss with respect to a logit, from the gradients of the loss dlp with respect
// to the target's log-prob and dh with respect to the entropy H:
//   d = p * (-dlp - dh * (log p + H)), 0 if p is 0; plus dlp at the target; times 1 / temperature.
// The caller has the logit in memory or in a product's registers.
#pragma once
#include "kernels/vocabulary/tile_sum.cuh"

namespace slimexx::kernels::vocabulary {

// The constants of a row.
struct GradientRow {
  float lse = 1.0f, entropy = 0.0f, dlp = 0.0f, dh = 0.0f;
  int target = -1;

  // The gradient for z = logit / temperature, without the target's dlp and the factor
  // 1 / temperature.
  __device__ __forceinline__ float gradient(float z) const {
    const float log_p = __fadd_rn(z, -lse);
    const float p = exp_approx(log_p);
    const float d = __fmul_rn(p, __fmaf_rn(-dh, __fadd_rn(log_p, entropy), -dlp));
    return p == 0.0f ? 0.0f : d;  // log_p may be -inf
  }
};

// All arrays [rows]. `entropies` may be null if `dentropies` is.
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

}  // namespace slimexx::kernels::vocabulary
