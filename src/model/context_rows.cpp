#include "slimexx/model/context_rows.h"

#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/heads.h"

namespace slimexx::model {
namespace {

using ops::Tensor;

dist::Range own_range(const ops::Context& ctx, const ContextRows& rows) {
  return rows.ranges[static_cast<size_t>(ctx.groups.cp.rank())];
}

Tensor allocate_values(const ops::Context& ctx, int64_t num_rows, int64_t width) {
  return ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {num_rows, width});
}

}  // namespace

Tensor gather_context(const ops::Context& ctx, const ContextRows& rows,
                      std::initializer_list<Tensor> parts) {
  int64_t width = 0;
  for (const Tensor& part : parts) width += part.dim(1);
  const int64_t num_rows = rows.sequence_rows.dim(0);
  const Tensor by_sequence = allocate_values(ctx, num_rows, width);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor by_rank = allocate_values(ctx, num_rows, width);
  const dist::Range own = own_range(ctx, rows);
  const Tensor own_rows = by_rank.rows(own.begin, own.end).split_last({1, width});
  int64_t column = 0;
  for (const Tensor& part : parts) {
    ops::copy_head_columns(ctx, own_rows, column, part.split_last({1, part.dim(1)}), 0,
                           part.dim(1));
    column += part.dim(1);
  }
  ctx.groups.cp.all_gather_ranges(ctx.stream, by_rank, rows.ranges);
  ops::gather_rows(ctx, by_sequence, by_rank, rows.rank_rows);
  return by_sequence;
}

Tensor reduce_context(const ops::Context& ctx, const ContextRows& rows, Tensor terms) {
  const Tensor by_rank = allocate_values(ctx, terms.dim(0), terms.dim(1));
  ops::gather_rows(ctx, by_rank, terms, rows.sequence_rows);
  ctx.groups.cp.reduce_scatter_sum(ctx.stream, ctx.arena, by_rank, rows.ranges,
                                   dist::SumOrder::kRank);
  const dist::Range own = own_range(ctx, rows);
  return by_rank.rows(own.begin, own.end);
}

Tensor take_context(const ops::Context& ctx, const ContextRows& rows, Tensor values) {
  const dist::Range own = own_range(ctx, rows);
  const Tensor taken = allocate_values(ctx, own.size(), values.dim(1));
  ops::gather_rows(ctx, taken, values, rows.sequence_rows.rows(own.begin, own.end));
  return taken;
}

}  // namespace slimexx::model
