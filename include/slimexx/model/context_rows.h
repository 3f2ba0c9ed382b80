// Moves rows between the ranks of context parallelism (context_shards.h). All are collective over
// groups.cp but for those that send nothing.
//
// Legend: n rows of this rank, K rows of all ranks, N elements of a row. Of the compute dtype
// unless said.
#pragma once
#include <initializer_list>
#include <span>

#include "slimexx/dist/ranges.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// ContextShards on the device. Without ranges there is one rank, and none of the functions is for
// it.
struct ContextRows {
  std::span<const dist::Range> ranges = {};        // by cp rank, host
  ops::Tensor sequence_rows = {}, rank_rows = {};  // [K] i32
  // [pages * kContextPage] i32, on CUDA only: of each place in the pages of all sequences, the row
  // by rank (context_shards.h).
  ops::Tensor page_rows = {};
  bool is_sharded() const { return !ranges.empty(); }
};

// [K, sum of N], by sequence. `parts` [n,N] (free row stride) stand side by side.
ops::Tensor gather_context(const ops::Context& ctx, const ContextRows& rows,
                           std::initializer_list<ops::Tensor> parts);
// [pages, kContextPage, N]: the same by pages, as CUDA's attention reads gathered keys. `part`
// [n,N] (free row stride).
ops::Tensor gather_context_pages(const ops::Context& ctx, const ContextRows& rows,
                                 ops::Tensor part);
// [K] F32 by sequence, of `own` [n], and this rank's [n] of what all ranks have; the latter sends
// nothing.
ops::Tensor gather_context_values(const ops::Context& ctx, const ContextRows& rows,
                                  ops::Tensor own);
ops::Tensor take_context_values(const ops::Context& ctx, const ContextRows& rows,
                                ops::Tensor values);
// [n,N]: the sum over ranks of this rank's rows, in rank order. `terms` [K,N] are by sequence.
ops::Tensor reduce_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor terms);
// [K,N] by sequence: this rank's rows `own` [n,N] (free row stride; other types without gaps), and
// zeros in the places of the others'. Sends nothing.
ops::Tensor spread_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor own);
// own[n,N] (free row stride) of `values` [K,N] by sequence. Sends nothing.
void take_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor own,
                  ops::Tensor values);

}  // namespace slimexx::model
