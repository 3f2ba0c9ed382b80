#include "rollout/step_shard.h"

#include <algorithm>

#include "slimexx/model/tp_rows.h"

namespace slimexx::rollout {

int64_t count_vocabulary_leaves(const model::Decoder& decoder, const dist::Groups& groups) {
  return std::max<int64_t>(decoder.local_spec().leaves, groups.tp.size());
}

model::Batch StepShard::split(const ops::Context& ctx, int64_t vocab_size,
                              const model::Batch& staged, std::span<const int32_t> tokens) {
  model::Batch batch = staged;
  tp_rows_ = model::split_over_tp(ctx, staged.tokens.dim(0));
  batch.tp_rows = tp_rows_;
  batch.own_vocabulary = model::select_own_tokens(ctx, vocab_size, tokens);
  return batch;
}

tensor::Tensor StepShard::logits(const ops::Context& ctx, const model::HeadSpec& spec,
                                 const model::HeadParameters<tensor::Tensor>& weights,
                                 tensor::Tensor x, tensor::Tensor rows,
                                 std::span<const int32_t> host_rows) const {
  if (tp_rows_.empty()) return model::head_logits(ctx, spec, weights, x, rows);
  const std::vector<dist::Range> ranges = model::split_selected_rows(ctx, tp_rows_, host_rows);
  const tensor::Tensor own = model::select_own_rows(ctx, tp_rows_, ranges, host_rows);
  return model::gather_head_logits(ctx, spec, weights, x, own, rows.dim(0), ranges);
}

}  // namespace slimexx::rollout
