// Tensor parallelism with sequence parallelism, for all blocks. Each tp rank holds its rows of the
// residual stream (Batch::tp_rows). Column-parallel products all-gather the rows; row-parallel
// products reduce-scatter their results over the tp ranks. With one tp rank nothing is copied.
//
// A row-parallel product is computed in V leaves (numerics contract, N6): equal ranges of K, each
// rounded to the compute dtype, then added in f32 from first to last and rounded once. The bias
// belongs to the first leaf. V tp ranks compute one leaf each. One rank computes all V; with V = 1
// that is the plain product.
//
// Legend: T rows of the batch, t rows of this rank, W any width.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "slimexx/model/batch.h"
#include "slimexx/model/tp_rows.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/linear.h"

namespace slimexx::model {

// own_rows_of: this rank's rows of `all` [T,W]. exchange_tp_rows: all-gathers the rows into `all`.
Tensor own_rows_of(const ops::Context& ctx, const Batch& batch, Tensor all);
void exchange_tp_rows(const ops::Context& ctx, const Batch& batch, Tensor all);

// The partial sums [T,W] that scatter_tp_sum reduces into own [t,W]; `own` itself if there is only
// one tp rank.
Tensor allocate_partial(const ops::Context& ctx, const Batch& batch, Tensor own);
// Reduce-scatter: own[t,W] = this rank's rows of the sum of the ranks' `partial` [T,W], in rank
// order. Overwrites `partial`.
void scatter_tp_sum(const ops::Context& ctx, const Batch& batch, Tensor own, Tensor partial);
// Reduce-scatter of any rows: `ranges` has the range of `partial` for each tp rank; empty if
// there is only one tp rank.
void scatter_tp_sum(const ops::Context& ctx, std::span<const dist::Range> ranges, Tensor own,
                    Tensor partial);

// y[t,N] = x[T,K] w[N,K]^T (+ bias[N]); K is this rank's shard.
void row_parallel_forward(const ops::Context& ctx, const Batch& batch, Tensor y, Tensor x,
                          const ops::Linear& w, int64_t leaves);

// `bias` (or its gradient) on the first tp rank, whose product adds it; undefined on the others.
inline Tensor on_first_tp_rank(const ops::Context& ctx, Tensor bias) {
  return ctx.groups.tp.rank() == 0 ? bias : Tensor{};
}

// Throws Error(kUsage) if `size`, from config.json's `key`, is not divisible by `tp`. The message
// has the equation and sizes that would work.
void check_tp_divides(const std::string& key, int64_t size, int64_t tp);
// Like check_tp_divides, for sizes that may be below `tp`, such as numbers of key-value heads: then
// `tp` must be divisible by `size`, and several ranks hold copies.
void check_tp_copies(const std::string& key, int64_t size, int64_t tp);

}  // namespace slimexx::model
