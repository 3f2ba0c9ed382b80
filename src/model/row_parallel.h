// Tensor parallelism with sequence parallelism, as all blocks use it. Rows of the residual stream
// lie with their owners (Batch::tp_rows); a column-parallel product gathers them, and what a
// row-parallel product gives is summed over tp ranks into the owners' rows. On one tp rank nothing
// is copied.
//
// A row-parallel product is V leaves (numerics contract, N6): equal ranges of K, each rounded to
// the compute dtype, added in f32 from the first to the last, rounded once. The first leaf has the
// bias. With V tp ranks each computes one leaf; one rank computes all, or, where V is 1, the plain
// product.
//
// Legend: T rows of the batch, t rows of this rank, W any width.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "slimexx/model/batch.h"
#include "slimexx/model/tp_rows.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// This rank's rows of `all` [T,W], and what gives all ranks those of the others.
Tensor own_rows_of(const ops::Context& ctx, const Batch& batch, Tensor all);
void exchange_tp_rows(const ops::Context& ctx, const Batch& batch, Tensor all);

// Where a rank's terms [T,W] of `own` [t,W] are computed; `own` itself on one tp rank.
Tensor allocate_partial(const ops::Context& ctx, const Batch& batch, Tensor own);
// own[t,W] becomes this rank's rows of the sum, in rank order, of the ranks' `partial` [T,W], which
// loses its content.
void scatter_tp_sum(const ops::Context& ctx, const Batch& batch, Tensor own, Tensor partial);
// The same of any rows, one range of `partial` a tp rank; no ranges: one tp rank.
void scatter_tp_sum(const ops::Context& ctx, std::span<const dist::Range> ranges, Tensor own,
                    Tensor partial);

// y[t,N] = x[T,K] w[N,K]^T (+ bias[N]), K being this rank's.
void row_parallel_forward(const ops::Context& ctx, const Batch& batch, Tensor y, Tensor x, Tensor w,
                          Tensor bias, int64_t leaves);

// `bias`, or its gradient, where this rank's product has it; else undefined.
inline Tensor on_first_tp_rank(const ops::Context& ctx, Tensor bias) {
  return ctx.groups.tp.rank() == 0 ? bias : Tensor{};
}

// Throws Error(kUsage) with the equation and sizes that would do unless `size`, of config.json's
// `key`, divides by tp ranks.
void check_tp_divides(const std::string& key, int64_t size, int64_t tp);
// The same where several ranks may hold copies of one, as of keys and values.
void check_tp_copies(const std::string& key, int64_t size, int64_t tp);

}  // namespace slimexx::model
