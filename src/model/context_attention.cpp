#include "model/context_attention.h"

namespace slimexx::model {

void context_attention_backward(const ops::Context& ctx, const Batch& batch,
                                const AttentionGradients& d, const AttentionValues& x,
                                float scale) {
  const int64_t num_heads = x.lse.dim(1);
  const auto heads = [&](Tensor rows) {
    return rows.split_last({num_heads, rows.dim(1) / num_heads});
  };
  if (!batch.context.page_rows.defined())
    return ops::attention_backward(ctx, heads(d.dq), d.dk, d.dv, heads(x.dout), heads(x.q), x.k,
                                   x.v, heads(x.out), x.lse, batch.attention, scale);
  const tensor::ArenaScope scope(ctx.arena);
  const auto spread = [&](Tensor own) { return spread_context(ctx, batch.context, own); };
  const Tensor q = spread(x.q), out = spread(x.out), dout = spread(x.dout), lse = spread(x.lse);
  const Tensor dq = ctx.arena.allocate(q.dtype(), {q.dim(0), q.dim(1)});
  ops::AttentionLayout layout = batch.sequences;
  if (batch.attention.selected.defined()) {  // backward with selected keys visits all queries
    layout.selected = spread(batch.attention.selected);
    layout.query_spans = {};
  }
  ops::attention_backward(ctx, heads(dq), d.dk, d.dv, heads(dout), heads(q), x.k, x.v, heads(out),
                          lse, layout, scale);
  take_context(ctx, batch.context, d.dq, dq);
}

}  // namespace slimexx::model
