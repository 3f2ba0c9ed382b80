#include "model/row_parallel.h"

#include <fmt/format.h>

#include "slimexx/base/divisors.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::model {
namespace {

// A contiguous copy of the columns [begin, begin + width) of `x`.
Tensor copy_columns(const ops::Context& ctx, Tensor x, int64_t begin, int64_t width) {
  const Tensor dense = ctx.arena.allocate(x.dtype(), {x.dim(0), width});
  ops::copy_head_columns(ctx, dense.split_last({1, width}), 0, x.split_last({1, x.dim(1)}), begin,
                         width);
  return dense;
}

// The product in all its leaves on one rank.
void multiply_leaves(const ops::Context& ctx, Tensor y, Tensor x, const ops::Linear& w,
                     int64_t leaves) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t width = w.columns() / leaves;
  const auto allocate = [&](DType dtype) {
    return ctx.arena.allocate(dtype, {y.dim(0), y.dim(1)});
  };
  const bool is_f32 = y.dtype() == DType::kF32;
  const Tensor leaf = allocate(y.dtype());
  const Tensor sum = is_f32 ? y : allocate(DType::kF32);
  const Tensor term = is_f32 ? leaf : allocate(DType::kF32);
  // Only CUDA products accept column ranges of wider rows as plain weights.
  const auto columns = [&](Tensor t, int64_t l) {
    return ctx.device().is_cpu() ? copy_columns(ctx, t, l * width, width)
                                 : t.columns(l * width, (l + 1) * width);
  };
  const auto leaf_of = [&](int64_t l) {
    ops::Linear own{.bias = l == 0 ? w.bias : Tensor{}};
    if (w.weight.defined()) own.weight = columns(w.weight, l);
    if (!w.is_fp8()) return own;
    const int64_t scales = w.scales.dim(1) / leaves;
    own.values = w.values.columns(l * width, (l + 1) * width);
    own.scales = w.scales.columns(l * scales, (l + 1) * scales);
    return own;
  };
  for (int64_t l = 0; l < leaves; ++l) {
    const tensor::ArenaScope leaf_scope(ctx.arena);
    ops::matmul_forward(ctx, leaf, columns(x, l), leaf_of(l));
    if (l == 0) {
      ops::copy(ctx, sum, leaf);
    } else {
      if (!is_f32) ops::copy(ctx, term, leaf);
      ops::add(ctx, sum, sum, term);
    }
  }
  if (!is_f32) ops::copy(ctx, y, sum);
}

}  // namespace

dist::Range own_rows(const Batch& batch, const dist::Groups& groups) {
  if (batch.tp_rows.empty()) return {0, batch.tokens.dim(0)};
  return batch.tp_rows[static_cast<size_t>(groups.tp.rank())];
}

Tensor own_rows_of(const ops::Context& ctx, const Batch& batch, Tensor all) {
  const dist::Range range = own_rows(batch, ctx.groups);
  return all.rows(range.begin, range.end);
}

void exchange_tp_rows(const ops::Context& ctx, const Batch& batch, Tensor all) {
  if (!batch.tp_rows.empty() && !has_all_rows(batch))
    ctx.groups.tp.all_gather_ranges(ctx.stream, all, batch.tp_rows);
}

Tensor allocate_partial(const ops::Context& ctx, const Batch& batch, Tensor own) {
  if (batch.tp_rows.empty()) return own;
  return ctx.arena.allocate(own.dtype(), {batch.tokens.dim(0), own.dim(1)});
}

void scatter_tp_sum(const ops::Context& ctx, const Batch& batch, Tensor own, Tensor partial) {
  if (has_all_rows(batch)) return ctx.groups.tp.sum_to_all(ctx.stream, ctx.arena, own, partial);
  scatter_tp_sum(ctx, batch.tp_rows, own, partial);
}

void scatter_tp_sum(const ops::Context& ctx, std::span<const dist::Range> ranges, Tensor own,
                    Tensor partial) {
  if (ranges.empty()) return;
  ctx.groups.tp.sum_to_shares(ctx.stream, ctx.arena, own, partial, ranges);
}

void row_parallel_forward(const ops::Context& ctx, const Batch& batch, Tensor y, Tensor x,
                          const ops::Linear& w, int64_t leaves) {
  if (leaves > 1) return multiply_leaves(ctx, y, x, w, leaves);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor partial = allocate_partial(ctx, batch, y);
  ops::Linear own = w;
  own.bias = on_first_tp_rank(ctx, w.bias);
  ops::matmul_forward(ctx, partial, x, own);
  scatter_tp_sum(ctx, batch, y, partial);
}

namespace {

constexpr const char* kTpSize = "parallel.tensor_model_parallel_size";

[[noreturn]] void refuse_tp(const std::string& equation, const std::string& hint) {
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: tensor-parallel ranks hold equal shards", equation), hint, kTpSize);
}

}  // namespace

void check_tp_divides(const std::string& key, int64_t size, int64_t tp) {
  if (size % tp != 0)
    refuse_tp(fmt::format("{} {} % tensor_model_parallel_size {} = {}", key, size, tp, size % tp),
              suggest_divisors(size, tp));
}

void check_tp_copies(const std::string& key, int64_t size, int64_t tp) {
  if (size >= tp) return check_tp_divides(key, size, tp);
  if (tp % size != 0)
    refuse_tp(fmt::format("tensor_model_parallel_size {} % {} {} = {}", tp, key, size, tp % size),
              fmt::format("set it to {} or {}", tp / size * size, (tp / size + 1) * size));
}

}  // namespace slimexx::model
