// Moves rows between the ranks of context parallelism (context_shards.h). All functions are
// collective over groups.cp, except those that send nothing.
//
// Legend: n rows of this rank, K rows of all ranks, N elements per row. Tensors have the compute
// dtype unless noted.
#pragma once
#include <initializer_list>
#include <span>

#include "slimexx/dist/ranges.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// ContextShards on the device. Empty ranges mean one cp rank; do not call the functions in that
// case.
struct ContextRows {
  std::span<const dist::Range> ranges = {};        // by cp rank, host
  ops::Tensor sequence_rows = {}, rank_rows = {};  // [K] i32
  // [pages * kContextPage] i32, CUDA only: for each slot of the pages of all sequences, the index
  // of its row in the order by rank (context_shards.h).
  ops::Tensor page_rows = {};
  bool is_sharded() const { return !ranges.empty(); }
};

// [K, sum of N], by sequence: `parts` [n,N] (free row stride) gathered and concatenated by column.
ops::Tensor gather_context(const ops::Context& ctx, const ContextRows& rows,
                           std::initializer_list<ops::Tensor> parts);
// [pages, kContextPage, N]: gathered rows in pages, as the CUDA attention reads keys. `part` is
// [n,N] (free row stride).
ops::Tensor gather_context_pages(const ops::Context& ctx, const ContextRows& rows,
                                 ops::Tensor part);
// gather_context_values returns [K] F32 by sequence from `own` [n]. take_context_values returns
// this rank's [n] of `values` [K] and sends nothing.
ops::Tensor gather_context_values(const ops::Context& ctx, const ContextRows& rows,
                                  ops::Tensor own);
ops::Tensor take_context_values(const ops::Context& ctx, const ContextRows& rows,
                                ops::Tensor values);
// [n,N]: reduce-scatter. Sums this rank's rows over all ranks, in rank order. `terms` [K,N] are by
// sequence.
ops::Tensor reduce_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor terms);
// [K,N] by sequence: this rank's rows `own` [n,N], and zeros in the rows of other ranks. `own` has
// a free row stride, but must be contiguous if it is not of the compute dtype. Sends nothing.
ops::Tensor spread_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor own);
// Copies this rank's rows of `values` [K,N], by sequence, to own[n,N] (free row stride). Sends
// nothing.
void take_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor own,
                  ops::Tensor values);

}  // namespace slimexx::model
