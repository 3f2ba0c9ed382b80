#include "slimexx/ops/log_prob.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/kernels/lm_head_sizes.h"

namespace slimexx::ops {
namespace {

// The operands that all gradients of logits need, one element per row; entropies and dentropies are
// both defined or both not.
void check_gradient_rows(const char* op, const Context& ctx, int64_t num_rows, const Tensor& lse,
                         const Tensor& targets, const Tensor& entropies, const Tensor& dlog_probs,
                         const Tensor& dentropies) {
  check_f32(op, "lse", ctx, lse, {num_rows});
  check_i32(op, "targets", ctx, targets, {num_rows});
  check_f32(op, "dlog_probs", ctx, dlog_probs, {num_rows});
  SLX_CHECK_EQ(entropies.defined(), dentropies.defined());
  if (!entropies.defined()) return;
  check_f32(op, "entropies", ctx, entropies, {num_rows});
  check_f32(op, "dentropies", ctx, dentropies, {num_rows});
}

}  // namespace

void normalize_logits(const Context& ctx, Tensor logits, Tensor lse, float temperature) {
  check_f32("normalize_logits", "logits", ctx, logits, {kAny, kAny}, Strides::kRows);
  check_f32("normalize_logits", "lse", ctx, lse, {logits.dim(0)});
  SLX_CHECK_GT(temperature, 0.0f);
  SLX_CHECK_GT(logits.dim(1), 0);
  if (logits.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::normalize_logits(logits, lse, temperature);
  SLX_LAUNCH_SCRATCH(normalize_logits(ctx, logits, lse, temperature));
}

void merge_lse(const Context& ctx, Tensor lse, Tensor leaves) {
  check_f32("merge_lse", "leaves", ctx, leaves, {kAny, kAny});
  check_f32("merge_lse", "lse", ctx, lse, {leaves.dim(1)});
  SLX_CHECK_GT(leaves.dim(0), 0);
  if (lse.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::merge_lse(lse, leaves);
  SLX_LAUNCH(merge_lse(ctx, lse, leaves));
}

void gather_log_probs(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor logits,
                      Tensor lse, Tensor targets) {
  constexpr const char* kOp = "gather_log_probs";
  check_f32(kOp, "logits", ctx, logits, {kAny, kAny}, Strides::kRows);
  check_f32(kOp, "lse", ctx, lse, {logits.dim(0)});
  check_i32(kOp, "targets", ctx, targets, {logits.dim(0)});
  check_f32(kOp, "log_probs", ctx, log_probs, {logits.dim(0)});
  if (entropies.defined()) check_f32(kOp, "entropies", ctx, entropies, {logits.dim(0)});
  if (logits.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::gather_log_probs(log_probs, entropies, logits, lse, targets);
  SLX_LAUNCH_SCRATCH(gather_log_probs(ctx, log_probs, entropies, logits, lse, targets));
}

void log_probs_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                        Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                        float temperature) {
  constexpr const char* kOp = "log_probs_backward";
  const int64_t num_rows = logits.dim(0);
  check_f32(kOp, "logits", ctx, logits, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "dlogits", ctx, dlogits, {num_rows, logits.dim(1)}, Strides::kRows);
  check_gradient_rows(kOp, ctx, num_rows, lse, targets, entropies, dlog_probs, dentropies);
  SLX_CHECK_GT(temperature, 0.0f);
  if (num_rows == 0) return;
  if (runs_on_cpu(ctx))
    return cpu::log_probs_backward(dlogits, logits, lse, targets, entropies, dlog_probs, dentropies,
                                   temperature);
  SLX_LAUNCH(log_probs_backward(ctx, dlogits, logits, lse, targets, entropies, dlog_probs,
                                dentropies, temperature));
}

bool fuses_lm_head(tensor::Device device) { return !device.is_cpu(); }

bool can_keep_logits(Tensor w) { return kernels::lm_head_takes_tensor_cores(w.dim(0), w.dim(1)); }

void lm_head_forward(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor lse,
                     Tensor hidden, Tensor w, Tensor targets, float temperature, Tensor logits) {
  constexpr const char* kOp = "lm_head_forward";
  SLX_CHECK(fuses_lm_head(ctx.device()), "lm_head_forward: not supported on the CPU");
  check_compute(kOp, "hidden", ctx, hidden, {kAny, kAny});
  check_compute(kOp, "w", ctx, w, {kAny, hidden.dim(1)});
  check_i32(kOp, "targets", ctx, targets, {hidden.dim(0)});
  check_f32(kOp, "log_probs", ctx, log_probs, {hidden.dim(0)});
  check_f32(kOp, "lse", ctx, lse, {hidden.dim(0)});
  if (entropies.defined()) check_f32(kOp, "entropies", ctx, entropies, {hidden.dim(0)});
  if (logits.defined()) check_f32(kOp, "logits", ctx, logits, {hidden.dim(0), w.dim(0)});
  SLX_CHECK_GT(temperature, 0.0f);
  if (hidden.dim(0) == 0 || runs_on_cpu(ctx)) return;
  SLX_LAUNCH_SCRATCH(
      lm_head_forward(ctx, log_probs, entropies, lse, hidden, w, targets, temperature, logits));
}

void lm_head_backward_logits(const Context& ctx, Tensor dlogits, Tensor hidden, Tensor w,
                             Tensor lse, Tensor targets, Tensor entropies, Tensor dlog_probs,
                             Tensor dentropies, float temperature) {
  constexpr const char* kOp = "lm_head_backward_logits";
  const int64_t num_rows = hidden.dim(0);
  SLX_CHECK(fuses_lm_head(ctx.device()), "lm_head_backward_logits: not supported on the CPU");
  check_compute(kOp, "hidden", ctx, hidden, {kAny, kAny});
  check_compute(kOp, "w", ctx, w, {kAny, hidden.dim(1)});
  check_compute(kOp, "dlogits", ctx, dlogits, {num_rows, w.dim(0)}, Strides::kRows);
  check_gradient_rows(kOp, ctx, num_rows, lse, targets, entropies, dlog_probs, dentropies);
  SLX_CHECK_GT(temperature, 0.0f);
  if (num_rows == 0 || runs_on_cpu(ctx)) return;
  SLX_LAUNCH_SCRATCH(lm_head_backward_logits(ctx, dlogits, hidden, w, lse, targets, entropies,
                                             dlog_probs, dentropies, temperature));
}

void lm_head_kept_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                           Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                           float temperature) {
  constexpr const char* kOp = "lm_head_kept_backward";
  const int64_t num_rows = logits.dim(0);
  SLX_CHECK(fuses_lm_head(ctx.device()), "lm_head_kept_backward: not supported on the CPU");
  check_f32(kOp, "logits", ctx, logits, {num_rows, kAny});
  check_compute(kOp, "dlogits", ctx, dlogits, {num_rows, logits.dim(1)}, Strides::kRows);
  check_gradient_rows(kOp, ctx, num_rows, lse, targets, entropies, dlog_probs, dentropies);
  SLX_CHECK_GT(temperature, 0.0f);
  if (num_rows == 0 || runs_on_cpu(ctx)) return;
  SLX_LAUNCH(lm_head_kept_backward(ctx, dlogits, logits, lse, targets, entropies, dlog_probs,
                                   dentropies, temperature));
}

}  // namespace slimexx::ops
