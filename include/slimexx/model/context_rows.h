// Moves rows between the ranks of context parallelism (context_shards.h). All are collective over
// groups.cp.
//
// Legend: n rows of this rank, K rows of all ranks, N elements of a row. Of the compute dtype.
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
  bool is_sharded() const { return !ranges.empty(); }
};

// [K, sum of N], by sequence. `parts` [n,N] (free row stride) stand side by side.
ops::Tensor gather_context(const ops::Context& ctx, const ContextRows& rows,
                           std::initializer_list<ops::Tensor> parts);
// [n,N]: the sum over ranks of this rank's rows, in rank order. `terms` [K,N] are by sequence.
ops::Tensor reduce_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor terms);
// [n,N]: this rank's rows of what all ranks have, `values` [K,N] by sequence. Sends nothing.
ops::Tensor take_context(const ops::Context& ctx, const ContextRows& rows, ops::Tensor values);

}  // namespace slimexx::model
