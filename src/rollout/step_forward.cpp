#include "rollout/step_forward.h"

#include <algorithm>
#include <vector>

#include "slimexx/model/tp_rows.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {

tensor::Tensor forward_step(const ops::Context& ctx, const model::Decoder& decoder,
                            const model::ModelParameters& weights, const model::Batch& staged) {
  const std::vector<dist::Range> tp_rows = model::split_over_tp(ctx, staged.tokens.dim(0));
  model::Batch batch = staged;
  batch.tp_rows = tp_rows;
  return model::gather_tp_rows(ctx, batch, decoder.forward(ctx, weights, batch, nullptr));
}

void sample_rows(const ops::Context& ctx, const model::Decoder& decoder,
                 const model::ModelParameters& weights, tensor::Tensor x,
                 const SamplingGroup& group, int64_t allowed_tokens) {
  const tensor::ArenaScope scope(ctx.arena);
  const tensor::Tensor logits =
      model::head_logits(ctx, decoder.spec().head(), weights.head, x, group.rows);
  // Rows are normalised in the leaves of the vocabulary (numerics contract, N6).
  const int64_t leaves = std::max<int64_t>(decoder.local_spec().leaves, ctx.groups.tp.size());
  ops::sample_tokens(ctx, group.tokens, group.log_probs, logits, group.parameters, allowed_tokens,
                     leaves);
}

}  // namespace slimexx::rollout
