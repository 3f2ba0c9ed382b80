#include "slimexx/model/blocks/embedding.h"

#include "model/parameter_list.h"
#include "model/row_parallel.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"

namespace slimexx::model {
namespace {

// A row like those of `x` for each token of this rank's vocabulary: of as much memory as if it were
// all tokens, whatever they are.
Tensor allocate_own_tokens(const ops::Context& ctx, const Batch& batch, Tensor x) {
  return ctx.arena.allocate(x.dtype(), {batch.tokens.dim(0), x.dim(1)})
      .rows(0, batch.own_vocabulary.ids.dim(0));
}

}  // namespace

ParameterId declare(ParameterList& list, const EmbeddingSpec& spec) {
  const ParameterId id =
      list.add_weight("embedding.weight", {{"model.embed_tokens.weight", spec.vocab_size}},
                      spec.hidden_size, {{.axis = 0}});
  list.infos.back().zero_before_backward = !spec.is_head_too;
  return id;
}

void embed(const ops::Context& ctx, Tensor table, const Batch& batch, Tensor x) {
  if (batch.tp_rows.empty()) return ops::embedding_forward(ctx, x, table, batch.tokens);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor sum = ctx.arena.allocate(x.dtype(), {batch.tokens.dim(0), x.dim(1)});
  const Tensor own = allocate_own_tokens(ctx, batch, x);
  ops::fill_zero(ctx, sum);
  ops::embedding_forward(ctx, own, table, batch.own_vocabulary.ids);
  ops::scatter_add_rows(ctx, sum, own, batch.own_vocabulary.rows);
  scatter_tp_sum(ctx, batch, x, sum);
}

void embed_backward(const ops::Context& ctx, Tensor dtable, const Batch& batch, Tensor dx) {
  if (!dtable.defined()) return;
  if (batch.tp_rows.empty()) return ops::embedding_backward(ctx, dtable, dx, batch.tokens);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor all = gather_tp_rows(ctx, batch, dx), own = allocate_own_tokens(ctx, batch, dx);
  ops::gather_rows(ctx, own, all, batch.own_vocabulary.rows);
  ops::embedding_backward(ctx, dtable, own, batch.own_vocabulary.ids);
}

}  // namespace slimexx::model
