#include "model/blocks/key_pages.h"

namespace slimexx::model {

ops::CacheRows make_key_pages(bool fp8, DType dtype, Tensor memory,
                              const std::array<int64_t, 4>& shape) {
  const auto [num_pages, page_tokens, heads, head_dim] = shape;
  const Tensor rows(memory.raw(), fp8 ? DType::kF8E4M3 : dtype, memory.device(),
                    {num_pages, page_tokens, heads, head_dim});
  if (!fp8) return rows;
  const Tensor rest = memory.rows(rows.size_bytes(), memory.size_bytes());
  return {rows, Tensor(rest.raw(), DType::kBF16, memory.device(), {num_pages, heads, page_tokens})};
}

}  // namespace slimexx::model
