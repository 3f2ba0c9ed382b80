#include "rollout/step_forward.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "slimexx/model/tp_rows.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {
namespace {

// Of all other tp ranks together: how many of their rows of terms a rank reads in one call, where
// every one has all rows. Splitting rows moves fewer bytes from three ranks on, in two calls.
constexpr int64_t kMostReadRows = 256;

// Routed experts would compute the rows of each tp rank.
bool has_experts(const model::ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const model::LayerSpec& layer) {
    return std::holds_alternative<model::MoeMlpSpec>(layer.mlp);
  });
}

}  // namespace

int64_t most_repeated_rows(const model::ModelSpec& spec, int tp_ranks) {
  return tp_ranks == 1 || has_experts(spec) ? 0 : kMostReadRows / (tp_ranks - 1);
}

StepOutput forward_step(const ops::Context& ctx, const model::Decoder& decoder,
                        const model::ModelParameters& weights, const model::Batch& staged) {
  const int64_t rows = staged.tokens.dim(0);
  StepOutput step;
  step.tp_rows = rows <= most_repeated_rows(decoder.spec(), ctx.groups.tp.size())
                     ? model::repeat_over_tp(ctx, rows)
                     : model::split_over_tp(ctx, rows);
  step.batch = staged;
  step.batch.tp_rows = step.tp_rows;
  step.own = decoder.forward(ctx, weights, step.batch, nullptr);
  step.whole = model::gather_tp_rows(ctx, step.batch, step.own);
  return step;
}

void sample_rows(const ops::Context& ctx, const model::Decoder& decoder,
                 const model::HeadParameters<tensor::Tensor>& head, tensor::Tensor x,
                 const SamplingGroup& group, int64_t allowed_tokens) {
  const tensor::ArenaScope scope(ctx.arena);
  const tensor::Tensor logits = model::head_logits(ctx, decoder.spec().head(), head, x, group.rows);
  // Rows are normalised in the leaves of the vocabulary (numerics contract, N6).
  const int64_t leaves = std::max<int64_t>(decoder.local_spec().leaves, ctx.groups.tp.size());
  ops::sample_tokens(ctx, group.tokens, group.log_probs, logits, group.parameters, allowed_tokens,
                     leaves);
}

tensor::Tensor draft_step(const ops::Context& ctx, const model::Decoder& decoder,
                          const model::ModelParameters& weights, const StepOutput& step,
                          tensor::Tensor next_tokens) {
  const tensor::Tensor hidden =
      ctx.arena.allocate(step.own.dtype(), {step.own.dim(0), step.own.dim(1)});
  ops::rms_norm_forward(ctx, hidden, step.own, weights.head.final_norm,
                        static_cast<float>(decoder.spec().rms_norm_eps));
  model::Batch batch = step.batch;
  batch.tokens = next_tokens;
  return model::gather_tp_rows(
      ctx, batch, decoder.mtp_step(ctx, weights, 0, batch, hidden, batch.pages.back()));
}

model::HeadParameters<tensor::Tensor> drafting_head(const model::ModelParameters& weights) {
  return {.final_norm = weights.mtp[0].final_norm, .lm_head = weights.head.lm_head};
}

}  // namespace slimexx::rollout
