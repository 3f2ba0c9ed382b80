#include "slimexx/ops/policy_loss.h"

#include "ops/checks.h"
#include "ops/cpu/policy_loss.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/policy_loss_args.h"

namespace slimexx::ops {

kernels::PolicyLossArgs describe_policy_loss(const Tensor& dlog_probs, const Tensor& dentropies,
                                             const Tensor& metrics, const PolicyLossRows& rows,
                                             const PolicyLossOptions& options) {
  const bool on_host = rows.log_probs.device().is_cpu();
  return {.options = options,
          .log_probs = rows.log_probs.f32(),
          .entropies = rows.entropies.f32(),
          .old_log_probs = rows.old_log_probs.f32(),
          .ref_log_probs = rows.ref_log_probs.f32(),
          .rollout_log_probs = rows.rollout_log_probs.f32(),
          .advantages = rows.advantages.f32(),
          .mask = rows.mask.f32(),
          .weights = rows.weights.f32(),
          .cu_rows = on_host ? rows.cu_rows.data() : rows.device_cu_rows.i32(),
          .rows = rows.log_probs.dim(0),
          .sequences = rows.cu_rows.empty() ? 0 : std::ssize(rows.cu_rows) - 1,
          .dlog_probs = dlog_probs.f32(),
          .dentropies = dentropies.f32(),
          .metrics = metrics.data<double>()};
}

void policy_loss(const Context& ctx, Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                 const PolicyLossRows& rows, const PolicyLossOptions& options) {
  constexpr const char* kOp = "policy_loss";
  const int64_t num_rows = rows.log_probs.dim(0);
  const auto check_rows = [&](const char* name, const Tensor& t, bool required) {
    if (required || t.defined()) check_f32(kOp, name, ctx, t, {num_rows});
  };
  check_rows("dlog_probs", dlog_probs, true);
  check_rows("dentropies", dentropies, options.entropy_coef != 0);
  check_rows("log_probs", rows.log_probs, true);
  check_rows("entropies", rows.entropies, options.entropy_coef != 0);
  check_rows("old_log_probs", rows.old_log_probs, false);
  check_rows("ref_log_probs", rows.ref_log_probs, options.use_kl);
  check_rows("rollout_log_probs", rows.rollout_log_probs, options.tis != TisMode::kOff);
  check_rows("advantages", rows.advantages, options.kind != LossKind::kSft);
  check_rows("mask", rows.mask, true);
  check_rows("weights", rows.weights, true);
  check_operand(kOp, "metrics", ctx, metrics, tensor::DType::kF64, {kNumLossMetrics});
  if (num_rows == 0) return;
  if (runs_on_cpu(ctx)) return cpu::policy_loss(dlog_probs, dentropies, metrics, rows, options);
  SLX_LAUNCH_SCRATCH(policy_loss(ctx, dlog_probs, dentropies, metrics, rows, options));
}

}  // namespace slimexx::ops
