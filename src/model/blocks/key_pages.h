// Pages of key heads in a KV cache, in the compute type or in FP8 (ops/cache_rows.h).
#pragma once
#include <array>
#include <cstdint>

#include "slimexx/model/batch.h"

namespace slimexx::model {

// Bytes of one token's keys (or values): `heads` heads of `head_dim` elements. In FP8 an element
// has one byte, and each head a scale of two.
inline int64_t key_bytes(bool fp8, int64_t heads, int64_t head_dim, DType dtype) {
  return heads * (fp8 ? head_dim + 2 : head_dim * tensor::dtype_bytes(dtype));
}

// Pages at the start of `memory` [bytes] U8, of `shape` [num_pages, page_tokens, heads, head_dim].
// The scales of FP8 pages follow the values.
ops::CacheRows make_key_pages(bool fp8, DType dtype, Tensor memory,
                              const std::array<int64_t, 4>& shape);

}  // namespace slimexx::model
