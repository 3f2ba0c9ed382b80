#include "slimexx/kernels/vocabulary.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/logit_rows.h"
#include "slimexx/kernels/step_tokens.h"

namespace slimexx::ops::cuda {

void sample_tokens(const Context& ctx, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens) {
  const ScratchScope scratch(ctx, kernels::sample_tokens_workspace(logits.dim(0), logits.dim(1)));
  if (ctx.planning()) return;
  SLX_CUDA(kernels::sample_tokens(tokens.i32(), log_probs.f32(), logit_rows(logits),
                                  rows.data<SamplingRow>(), allowed_tokens, scratch.data(),
                                  handle(ctx)));
}

void normalize_sampled_logits(const Context& ctx, Tensor logits, Tensor lse, Tensor rows) {
  const ScratchScope scratch(ctx,
                             kernels::normalize_logits_workspace(logits.dim(0), logits.dim(1)));
  if (ctx.planning() || logits.dim(0) == 0) return;
  SLX_CUDA(kernels::normalize_logits(logit_rows(logits), lse.f32(), rows.data<SamplingRow>(),
                                     scratch.data(), handle(ctx)));
}

void fill_sampled_tokens(const Context& ctx, Tensor tokens, Tensor sampled) {
  SLX_CUDA(kernels::fill_sampled_tokens(tokens.i32(), tokens.dim(0), sampled.i32(), handle(ctx)));
}

void advance_drafts(const Context& ctx, const kernels::DraftRows& rows) {
  SLX_CUDA(kernels::advance_drafts(rows, handle(ctx)));
}

void copy_samples_to_host(const Context& ctx, int32_t* host_tokens, float* host_log_probs,
                          Tensor tokens, Tensor log_probs) {
  SLX_CUDA(kernels::copy_samples_to_host(host_tokens, host_log_probs, tokens.i32(), log_probs.f32(),
                                         tokens.dim(0), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
