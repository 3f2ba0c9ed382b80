// Token losses of policy optimisation and supervised training, with their derivatives, over the R
// selected rows of a microbatch. kernels/policy_loss_args.h defines kinds, options and metrics.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/kernels/policy_loss_args.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

using kernels::KlKind;
using kernels::KlValue;
using kernels::kNumLossMetrics;
using kernels::LossKind;
using kernels::LossMetric;
using kernels::PolicyLossOptions;
using kernels::TisMode;

// All are [R] f32 unless noted; undefined if not needed.
struct PolicyLossRows {
  Tensor log_probs, entropies;
  Tensor old_log_probs;  // undefined: log_probs, without gradient (ratio exactly 1)
  Tensor ref_log_probs;
  Tensor rollout_log_probs;
  Tensor advantages;
  Tensor mask;     // 0 or 1
  Tensor weights;  // mask / denominator of the global batch: the loss is sum weights * token loss
  std::span<const int32_t> cu_rows = {};  // [S+1] host: rows of each sample
  Tensor device_cu_rows = {};  // the same as i32 on CUDA, if kernels::takes_sequence_means
};

// KL estimate from d = log p - log p_base, and its derivative with respect to log p; low_var is
// clamped to [-10, 10].
KlValue estimate_kl(KlKind kind, float d);

// (scratch) Writes dlog_probs[R] and dentropies[R] (may be undefined if entropy_coef is 0); adds to
// metrics[kNumLossMetrics] f64 (maximum for kLogProbMaxDiff).
void policy_loss(const Context& ctx, Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                 const PolicyLossRows& rows, const PolicyLossOptions& options);

}  // namespace slimexx::ops
