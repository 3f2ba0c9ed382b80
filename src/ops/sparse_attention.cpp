#include "slimexx/ops/sparse_attention.h"

#include "ops/attention_checks.h"
#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

// Rows [first_row, first_row + num_rows) exist in the layout, and each of their keys has a column.
void check_rows(const char* op, const AttentionLayout& layout, const Context& ctx,
                int64_t first_row, int64_t num_rows, int64_t num_columns) {
  const bool bounded = !ctx.device().is_cpu() && layout.max_query_len > 0 && layout.max_key_len > 0;
  SLX_CHECK(bounded || !layout.cu_seqlens.empty(), "{}: no sequence lengths on the host", op);
  const int64_t num_tokens =
      layout.cu_seqlens.empty() ? first_row + num_rows : layout.cu_seqlens.back();
  check_layout(op, layout, ctx, num_tokens);
  SLX_CHECK(first_row >= 0 && first_row + num_rows <= num_tokens,
            "{}: rows {} to {} exceed {} tokens", op, first_row, first_row + num_rows, num_tokens);
  for (size_t b = 0; b + 1 < layout.cu_seqlens.size(); ++b) {
    const int64_t keys = layout.context_len(b) + layout.cu_seqlens[b + 1] - layout.cu_seqlens[b];
    SLX_CHECK_LE(keys, num_columns);
  }
}

}  // namespace

int64_t max_sequence_keys(const AttentionLayout& layout, int64_t num_tokens) {
  if (layout.page_table.defined()) return layout.page_table.dim(1) * layout.page_tokens;
  return layout.key_starts.empty() ? num_tokens : layout.num_keys;
}

void index_scores(const Context& ctx, Tensor scores, Tensor q, Tensor weights, const CacheRows& k,
                  const AttentionLayout& layout, int64_t first_row, int64_t top_k, float scale) {
  constexpr const char* kOp = "index_scores";
  check_compute(kOp, "q", ctx, q, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "weights", ctx, weights, {q.dim(0), q.dim(1)});
  check_f32(kOp, "scores", ctx, scores, {q.dim(0), kAny});
  if (layout.page_table.defined()) {
    check_pages(kOp, "k", ctx, k, {kAny, layout.page_tokens, 1, q.dim(2)});
  } else {
    check_compute(kOp, "k", ctx, k.rows, {kAny, 1, q.dim(2)}, Strides::kRows);
    if (!layout.cu_seqlens.empty())
      SLX_CHECK_EQ(k.rows.dim(0), max_sequence_keys(layout, layout.cu_seqlens.back()));
  }
  check_rows(kOp, layout, ctx, first_row, q.dim(0), scores.dim(1));
  SLX_CHECK_GT(scale, 0.0f);
  if (q.dim(0) == 0) return;
  if (runs_on_cpu(ctx))
    return cpu::index_scores(scores, q, weights, k, layout, first_row, top_k, scale);
  SLX_LAUNCH(index_scores(ctx, scores, q, weights, k, layout, first_row, top_k, scale));
}

void select_keys(const Context& ctx, Tensor selected, Tensor scores, const AttentionLayout& layout,
                 int64_t first_row) {
  constexpr const char* kOp = "select_keys";
  check_i32(kOp, "selected", ctx, selected, {kAny, kAny});
  check_f32(kOp, "scores", ctx, scores, {selected.dim(0), kAny});
  check_rows(kOp, layout, ctx, first_row, selected.dim(0), scores.dim(1));
  SLX_CHECK_GT(selected.dim(1), 0);
  if (selected.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::select_keys(selected, scores, layout, first_row);
  SLX_LAUNCH(select_keys(ctx, selected, scores, layout, first_row));
}

}  // namespace slimexx::ops
