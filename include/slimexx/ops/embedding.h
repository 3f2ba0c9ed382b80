// The embedding: tokens[T] i32, table[V,H].
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

void embedding_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens);
// The same with the table's rows [first, first + table rows) alone: rows of other tokens are zeros.
void embedding_shard_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens,
                             int64_t first);
// (scratch) dtable += dy, t ascending.
void embedding_backward(const Context& ctx, Tensor dtable, Tensor dy, Tensor tokens);

}  // namespace slimexx::ops
