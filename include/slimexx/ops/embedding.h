// The embedding: tokens[T] i32, table[V,H].
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

void embedding_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens);
// From a shard of the table: rows [first, first + rows of `table`). Tokens outside the shard give
// zeros.
void embedding_shard_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens,
                             int64_t first);
// (scratch) dtable[tokens[t]] += dy[t], in ascending t.
void embedding_backward(const Context& ctx, Tensor dtable, Tensor dy, Tensor tokens);

}  // namespace slimexx::ops
