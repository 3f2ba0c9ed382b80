// The embedding: tokens[T] i32, table[V,H].
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

void embedding_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens);
// The same from a shard of the table: its rows [first, first + rows of `table`). Tokens outside
// give zeros.
void embedding_shard_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens,
                             int64_t first);
// (scratch) dtable += dy, tokens in ascending order t.
void embedding_backward(const Context& ctx, Tensor dtable, Tensor dy, Tensor tokens);

}  // namespace slimexx::ops
