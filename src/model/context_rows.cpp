#include "slimexx/model/context_rows.h"

#include "slimexx/model/context_shards.h"
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

Tensor own_part(const ops::Context& ctx, const ContextRows& rows, Tensor by_rank) {
  const dist::Range own = own_range(ctx, rows);
  return by_rank.rows(own.begin, own.end);
}

void put_rows(const ops::Context& ctx, Tensor y, Tensor x) {
  if (x.is_contiguous()) return tensor::copy_bytes(ctx.stream, y, x);
  ops::copy_head_columns(ctx, y.split_last({1, y.dim(1)}), 0, x.split_last({1, x.dim(1)}), 0,
                         x.dim(1));
}

// A view with the compute dtype, for functions that only move rows: an element of a wider dtype
// counts as several.
Tensor as_compute(const ops::Context& ctx, Tensor x) {
  const tensor::DType dtype = tensor::compute_dtype(ctx.device());
  const int64_t times = tensor::dtype_bytes(x.dtype()) / tensor::dtype_bytes(dtype);
  return {x.raw(), dtype, x.device(), {x.dim(0), x.dim(1) * times}};
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
  const Tensor own = own_part(ctx, rows, by_rank).split_last({1, width});
  int64_t column = 0;
  for (const Tensor& part : parts) {
    ops::copy_head_columns(ctx, own, column, part.split_last({1, part.dim(1)}), 0, part.dim(1));
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
  return own_part(ctx, rows, by_rank);
}

Tensor gather_context_pages(const ops::Context& ctx, const ContextRows& rows, Tensor part) {
  const int64_t num_rows = rows.page_rows.dim(0), width = part.dim(1);
  const Tensor by_page = allocate_values(ctx, num_rows, width);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor by_rank = allocate_values(ctx, rows.rank_rows.dim(0), width);
  put_rows(ctx, own_part(ctx, rows, by_rank), part);
  ctx.groups.cp.all_gather_ranges(ctx.stream, by_rank, rows.ranges);
  ops::gather_rows(ctx, by_page, by_rank, rows.page_rows);
  return by_page.reshaped({num_rows / kContextPage, kContextPage, width});
}

Tensor gather_context_values(const ops::Context& ctx, const ContextRows& rows, Tensor own) {
  const int64_t num_rows = rows.rank_rows.dim(0);
  const Tensor by_sequence = ctx.arena.allocate(tensor::DType::kF32, {num_rows});
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor by_rank = ctx.arena.allocate(tensor::DType::kF32, {num_rows});
  tensor::copy_bytes(ctx.stream, own_part(ctx, rows, by_rank), own);
  ctx.groups.cp.all_gather_ranges(ctx.stream, by_rank, rows.ranges);
  ops::gather_elements(ctx, by_sequence, by_rank, rows.rank_rows);
  return by_sequence;
}

Tensor take_context_values(const ops::Context& ctx, const ContextRows& rows, Tensor values) {
  const Tensor taken = ctx.arena.allocate(tensor::DType::kF32, {own_range(ctx, rows).size()});
  ops::gather_elements(ctx, taken, values, own_part(ctx, rows, rows.sequence_rows));
  return taken;
}

Tensor spread_context(const ops::Context& ctx, const ContextRows& rows, Tensor own) {
  const int64_t num_rows = rows.rank_rows.dim(0);
  const auto allocate = [&] { return ctx.arena.allocate(own.dtype(), {num_rows, own.dim(1)}); };
  const Tensor by_sequence = allocate();
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor by_rank = allocate();
  ops::fill_zero(ctx, by_rank);
  put_rows(ctx, own_part(ctx, rows, by_rank), own);
  ops::gather_rows(ctx, as_compute(ctx, by_sequence), as_compute(ctx, by_rank), rows.rank_rows);
  return by_sequence;
}

void take_context(const ops::Context& ctx, const ContextRows& rows, Tensor own, Tensor values) {
  ops::gather_rows(ctx, own, values, own_part(ctx, rows, rows.sequence_rows));
}

}  // namespace slimexx::model
