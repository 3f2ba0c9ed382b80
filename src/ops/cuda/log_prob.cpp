#include "slimexx/kernels/vocabulary.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/logit_rows.h"
#include "slimexx/kernels/lm_head.h"

namespace slimexx::ops::cuda {
namespace {

kernels::LmHeadProduct head_product(const Tensor& hidden, const Tensor& w) {
  return {.hidden = hidden.raw(),
          .w = w.raw(),
          .rows = hidden.dim(0),
          .vocabulary = w.dim(0),
          .k = w.dim(1)};
}

kernels::LmHeadGradient head_gradient(const Tensor& dlogits, const Tensor& lse,
                                      const Tensor& targets, const Tensor& entropies,
                                      const Tensor& dlog_probs, const Tensor& dentropies,
                                      float temperature) {
  return {.targets = targets.i32(),
          .temperature = temperature,
          .lse = lse.f32(),
          .entropies = entropies.f32(),
          .dlog_probs = dlog_probs.f32(),
          .dentropies = dentropies.f32(),
          .dlogits = dlogits.raw(),
          .dlogits_stride = dlogits.stride(0)};
}

}  // namespace

void normalize_logits(const Context& ctx, Tensor logits, Tensor lse, float temperature) {
  const ScratchScope scratch(ctx,
                             kernels::normalize_logits_workspace(logits.dim(0), logits.dim(1)));
  if (ctx.planning()) return;
  SLX_CUDA(kernels::normalize_logits(logit_rows(logits), lse.f32(), nullptr, temperature,
                                     scratch.data(), handle(ctx)));
}

void merge_lse(const Context& ctx, Tensor lse, Tensor leaves) {
  SLX_CUDA(kernels::merge_lse(lse.f32(), leaves.f32(), leaves.dim(0), lse.dim(0), handle(ctx)));
}

void gather_log_probs(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor logits,
                      Tensor lse, Tensor targets) {
  const ScratchScope scratch(ctx,
                             kernels::gather_log_probs_workspace(logits.dim(0), logits.dim(1)));
  if (ctx.planning()) return;
  SLX_CUDA(kernels::gather_log_probs(log_probs.f32(), entropies.f32(), logit_rows(logits),
                                     lse.f32(), targets.i32(), scratch.data(), handle(ctx)));
}

void log_probs_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                        Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                        float temperature) {
  SLX_CUDA(kernels::log_probs_backward(dlogits.raw(), dlogits.stride(0), logit_rows(logits),
                                       lse.f32(), targets.i32(), entropies.f32(), dlog_probs.f32(),
                                       dentropies.f32(), temperature, handle(ctx)));
}

void lm_head_forward(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor lse,
                     Tensor hidden, Tensor w, Tensor targets, float temperature, Tensor logits) {
  const ScratchScope scratch(ctx, kernels::lm_head_forward_workspace(
                                      hidden.dim(0), w.dim(0), w.dim(1), entropies.defined()));
  if (ctx.planning()) return;
  const kernels::LmHeadForwardArgs args{.product = head_product(hidden, w),
                                        .targets = targets.i32(),
                                        .temperature = temperature,
                                        .log_probs = log_probs.f32(),
                                        .lse = lse.f32(),
                                        .entropies = entropies.f32(),
                                        .workspace = scratch.data(),
                                        .logits = logits.f32()};
  check_launch("lm_head_forward", kernels::lm_head_forward(args, handle(ctx)), hidden, w);
}

void lm_head_backward_logits(const Context& ctx, Tensor dlogits, Tensor hidden, Tensor w,
                             Tensor lse, Tensor targets, Tensor entropies, Tensor dlog_probs,
                             Tensor dentropies, float temperature) {
  const ScratchScope scratch(
      ctx, kernels::lm_head_backward_workspace(hidden.dim(0), w.dim(0), w.dim(1)));
  if (ctx.planning()) return;
  const kernels::LmHeadBackwardArgs args{
      .product = head_product(hidden, w),
      .gradient =
          head_gradient(dlogits, lse, targets, entropies, dlog_probs, dentropies, temperature),
      .workspace = scratch.data()};
  check_launch("lm_head_backward_logits", kernels::lm_head_backward_logits(args, handle(ctx)),
               hidden, w);
}

void lm_head_kept_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                           Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                           float temperature) {
  const kernels::LmHeadKeptArgs args{
      .logits = logits.f32(),
      .rows = logits.dim(0),
      .vocabulary = logits.dim(1),
      .gradient =
          head_gradient(dlogits, lse, targets, entropies, dlog_probs, dentropies, temperature)};
  check_launch("lm_head_kept_backward", kernels::lm_head_kept_backward(args, handle(ctx)), dlogits,
               logits);
}

}  // namespace slimexx::ops::cuda
