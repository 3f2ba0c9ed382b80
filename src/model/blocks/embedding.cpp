#include "slimexx/model/blocks/embedding.h"

#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"

namespace slimexx::model {

ParameterId declare(ParameterList& list, const EmbeddingSpec& spec) {
  const ParameterId id =
      list.add_weight("embedding.weight", {{"model.embed_tokens.weight", spec.vocab_size}},
                      spec.hidden_size, {{.axis = 0}}, InitKind::kEmbedding);
  list.infos.back().zero_before_backward = !spec.is_head_too;
  return id;
}

void embed(const ops::Context& ctx, Tensor table, const Batch& batch, Tensor x) {
  if (batch.tp_rows.empty()) return ops::embedding_forward(ctx, x, table, batch.tokens);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor sum = ctx.arena.allocate(x.dtype(), {batch.tokens.dim(0), x.dim(1)});
  ops::embedding_shard_forward(ctx, sum, table, batch.tokens, ctx.groups.tp.rank() * table.dim(0));
  scatter_tp_sum(ctx, batch, x, sum);
}

void embed_backward(const ops::Context& ctx, Tensor dtable, const Batch& batch, Tensor dx) {
  if (!dtable.defined()) return;
  if (batch.tp_rows.empty()) return ops::embedding_backward(ctx, dtable, dx, batch.tokens);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor all = gather_tp_rows(ctx, batch, dx);
  // Allocate for all tokens: memory use must not depend on which tokens are in this rank's shard.
  const Tensor own = ctx.arena.allocate(dx.dtype(), {batch.tokens.dim(0), dx.dim(1)})
                         .rows(0, batch.own_vocabulary.ids.dim(0));
  ops::gather_rows(ctx, own, all, batch.own_vocabulary.rows);
  ops::embedding_backward(ctx, dtable, own, batch.own_vocabulary.ids);
}

}  // namespace slimexx::model
