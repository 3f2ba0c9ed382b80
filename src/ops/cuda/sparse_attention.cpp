#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "slimexx/kernels/sparse_index.h"

namespace slimexx::ops::cuda {
namespace {

// Rows [first_row, first_row + num_rows) of a layout; no sequence has more than max_keys.
kernels::IndexRows index_rows(const AttentionLayout& layout, int64_t first_row, int64_t num_rows,
                              int64_t max_keys) {
  kernels::IndexRows rows{.cu_seqlens = layout.device_cu_seqlens.i32(),
                          .context_lens = layout.device_context_lens.i32(),
                          .sequences = layout.device_cu_seqlens.dim(0) - 1,
                          .first_row = first_row,
                          .rows = num_rows,
                          .max_query_len = layout.max_query_len,
                          .max_key_len = layout.max_key_len};
  if (!layout.page_table.defined()) rows.context_lens = nullptr;
  for (size_t b = 0; b + 1 < layout.cu_seqlens.size(); ++b) {
    if (layout.max_query_len > 0 && layout.max_key_len > 0) break;
    const int64_t context = layout.context_lens.empty() ? 0 : layout.context_lens[b];
    const int64_t begin = layout.cu_seqlens[b], end = layout.cu_seqlens[b + 1];
    const int64_t first = std::max(begin, first_row), last = std::min(end, first_row + num_rows);
    if (first >= last) continue;
    rows.max_query_len = std::max(rows.max_query_len, last - first);
    rows.max_key_len = std::max(rows.max_key_len, context + last - begin);
  }
  rows.max_query_len = std::min(rows.max_query_len, num_rows);
  rows.max_key_len = std::min(rows.max_key_len, max_keys);
  return rows;
}

}  // namespace

void index_scores(const Context& ctx, Tensor scores, Tensor q, Tensor weights,
                  const CacheRows& keys, const AttentionLayout& layout, int64_t first_row,
                  int64_t top_k, float scale) {
  const Tensor& k = keys.rows;
  const bool paged = layout.page_table.defined();
  SLX_CUDA(kernels::index_scores({.rows = index_rows(layout, first_row, q.dim(0), scores.dim(1)),
                                  .q = q.raw(),
                                  .keys = k.raw(),
                                  .key_scales = keys.scales.raw(),
                                  .weights = weights.f32(),
                                  .scores = scores.f32(),
                                  .q_stride = q.stride(0),
                                  .key_stride = paged ? k.stride(1) : k.stride(0),
                                  .score_stride = scores.dim(1),
                                  .heads = q.dim(1),
                                  .head_dim = q.dim(2),
                                  .key_rows = paged ? k.dim(0) * k.dim(1) : k.dim(0),
                                  .page_table = paged ? layout.page_table.i32() : nullptr,
                                  .page_table_stride = paged ? layout.page_table.dim(1) : 0,
                                  .page_tokens = layout.page_tokens,
                                  .top_k = top_k,
                                  .scale = scale},
                                 handle(ctx)));
}

void select_keys(const Context& ctx, Tensor selected, Tensor scores, const AttentionLayout& layout,
                 int64_t first_row) {
  SLX_CUDA(
      kernels::select_keys({.rows = index_rows(layout, first_row, selected.dim(0), scores.dim(1)),
                            .scores = scores.f32(),
                            .selected = selected.i32(),
                            .score_stride = scores.dim(1),
                            .k = selected.dim(1)},
                           handle(ctx)));
}

}  // namespace slimexx::ops::cuda
