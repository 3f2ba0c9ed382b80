#include "rollout/step/step_forward.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "slimexx/model/tp_rows.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {
namespace {

// Upper bound on rows of partial sums that a rank reads from all other tp ranks together in one
// call, when every rank holds all rows. With three or more ranks, splitting rows moves fewer bytes,
// but needs two calls.
constexpr int64_t kMostReadRows = 256;

// Splits or repeats the rows of the batch over tp ranks; `ranges` owns the result.
void share_rows(const ops::Context& ctx, const model::Decoder& decoder, model::Batch& batch,
                std::vector<dist::Range>& ranges) {
  const int64_t rows = batch.tokens.dim(0);
  batch.repeats_rows = rows <= most_repeated_rows(decoder.spec(), ctx.groups.tp.size());
  ranges = batch.repeats_rows ? model::repeat_over_tp(ctx, rows) : model::split_over_tp(ctx, rows);
  batch.tp_rows = ranges;
}

float norm_eps(const model::Decoder& decoder) {
  return static_cast<float>(decoder.spec().rms_norm_eps);
}

}  // namespace

int64_t most_repeated_rows(const model::ModelSpec& spec, int tp_ranks) {
  // With routed experts, repeated rows would be computed once per tp rank.
  const bool has_experts = model::find_router(spec) != nullptr;
  return tp_ranks == 1 || has_experts ? 0 : kMostReadRows / (tp_ranks - 1);
}

StepOutput forward_step(const ops::Context& ctx, const model::Decoder& decoder,
                        const model::ModelParameters& weights, const model::Batch& staged) {
  StepOutput step;
  step.batch = staged;
  share_rows(ctx, decoder, step.batch, step.tp_rows);
  step.own = decoder.forward(ctx, weights, step.batch, nullptr);
  step.whole = model::gather_tp_rows(ctx, step.batch, step.own);
  return step;
}

void sample_rows(const ops::Context& ctx, const model::Decoder& decoder,
                 const model::HeadParameters<tensor::Tensor>& head, tensor::Tensor x,
                 const SamplingGroup& group, int64_t allowed_tokens) {
  const tensor::ArenaScope scope(ctx.arena);
  const tensor::Tensor logits = model::head_logits(ctx, decoder.spec().head(), head, x, group.rows);
  // Rows are normalised leaf by leaf of the vocabulary (numerics contract, N6).
  const int64_t leaves = std::max<int64_t>(decoder.local_spec().leaves, ctx.groups.tp.size());
  ops::sample_tokens(ctx, group.tokens, group.log_probs, logits, group.parameters, allowed_tokens,
                     leaves);
}

tensor::Tensor draft_step(const ops::Context& ctx, const model::Decoder& decoder,
                          const model::ModelParameters& weights, const StepOutput& step,
                          tensor::Tensor next_tokens) {
  const tensor::Tensor hidden =
      ctx.arena.allocate(step.own.dtype(), {step.own.dim(0), step.own.dim(1)});
  ops::rms_norm_forward(ctx, hidden, step.own, weights.head.final_norm, norm_eps(decoder));
  model::Batch batch = step.batch;
  batch.tokens = next_tokens;
  return model::gather_tp_rows(
      ctx, batch, model::mtp_step(ctx, decoder, weights, 0, batch, hidden, batch.pages.back()));
}

DraftChain make_draft_chain(const ops::Context& ctx, const model::Decoder& decoder,
                            const model::Batch& checked, tensor::Tensor cu_seqlens) {
  const int64_t rows = cu_seqlens.dim(0) - 1;
  const auto ints = [&] { return ctx.arena.allocate(tensor::DType::kI32, {rows}); };
  DraftChain chain{
      .tp_rows = {},
      .pass = {.tokens = ints(),
               .positions = ints(),
               .parameters = ctx.arena.allocate(
                   tensor::DType::kU8, {rows, static_cast<int64_t>(sizeof(ops::SamplingRow))}),
               .slots = ints(),
               .context_lens = ints()},
      .from_rows = ints(),
      .planned_cu_seqlens = {},
      .batch = checked};
  model::Batch& batch = chain.batch;
  batch.tokens = chain.pass.tokens;
  batch.positions = chain.pass.positions;
  batch.slots = chain.pass.slots;
  share_rows(ctx, decoder, batch, chain.tp_rows);
  ops::AttentionLayout& layout = batch.attention;
  layout.page_table = layout.page_table.rows(0, rows);
  layout.device_cu_seqlens = cu_seqlens;
  layout.device_context_lens = chain.pass.context_lens;
  // The pass before this one writes keys of this context, so they must not be read early.
  layout.context_is_written = false;
  layout.max_query_len = 1;
  layout.max_key_len = std::max<int64_t>(layout.max_key_len, 1);
  // On a GPU, lengths are on the host only while planning. On the CPU, host lengths are views of
  // the device tensors, read when the rows are computed.
  layout.cu_seqlens = layout.context_lens = {};
  if (ctx.planning()) {
    chain.planned_cu_seqlens.resize(static_cast<size_t>(rows) + 1);
    std::iota(chain.planned_cu_seqlens.begin(), chain.planned_cu_seqlens.end(), 0);
    layout.cu_seqlens = chain.planned_cu_seqlens;
  } else if (ctx.device().is_cpu()) {
    layout.cu_seqlens = {cu_seqlens.i32(), static_cast<size_t>(rows) + 1};
    layout.context_lens = {chain.pass.context_lens.i32(), static_cast<size_t>(rows)};
  }
  return chain;
}

tensor::Tensor draft_further(const ops::Context& ctx, const model::Decoder& decoder,
                             const model::ModelParameters& weights, const DraftChain& chain,
                             tensor::Tensor y) {
  const int64_t rows = chain.from_rows.dim(0);
  const tensor::Tensor from = ctx.arena.allocate(y.dtype(), {rows, y.dim(1)}),
                       hidden = ctx.arena.allocate(y.dtype(), {rows, y.dim(1)});
  ops::gather_rows(ctx, from, y, chain.from_rows);
  ops::rms_norm_forward(ctx, hidden, from, weights.mtp[0].final_norm, norm_eps(decoder));
  const dist::Range own = model::own_rows(chain.batch, ctx.groups);
  return model::gather_tp_rows(
      ctx, chain.batch,
      model::mtp_step(ctx, decoder, weights, 0, chain.batch, hidden.rows(own.begin, own.end),
                      chain.batch.pages.back()));
}

model::HeadParameters<tensor::Tensor> drafting_head(const model::ModelParameters& weights) {
  return {.final_norm = weights.mtp[0].final_norm, .lm_head = weights.head.lm_head};
}

}  // namespace slimexx::rollout
