#include "slimexx/kernels/attention.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "slimexx/kernels/attention_backward.h"
#include "slimexx/kernels/latent_attention.h"
#include "slimexx/kernels/rows.h"

namespace slimexx::ops::cuda {
namespace {

// In a packed batch a sequence has no keys except those of its queries.
int64_t longest_sequence(const AttentionLayout& layout) {
  int64_t longest = layout.max_query_len;
  if (longest > 0) return longest;
  for (size_t b = 0; b + 1 < layout.cu_seqlens.size(); ++b)
    longest = std::max<int64_t>(longest, layout.cu_seqlens[b + 1] - layout.cu_seqlens[b]);
  return longest;
}

kernels::AttentionRuns choose_runs(const AttentionLayout& layout, int64_t num_tokens,
                                   int64_t group) {
  const int64_t num_sequences = layout.device_cu_seqlens.dim(0) - 1;
  if (!layout.page_table.defined()) {
    // Without a context a short sequence has few keys: nothing to split.
    const int64_t longest = longest_sequence(layout);
    return {.few = {}, .split = {}, .whole = {num_sequences, longest, longest}};
  }
  if (layout.max_query_len > 0 && layout.max_key_len > 0)
    return kernels::choose_attention_runs({num_sequences, layout.max_query_len, layout.max_key_len},
                                          num_tokens, group, layout.max_split_tokens);
  return kernels::choose_attention_runs(layout.cu_seqlens, layout.context_lens, group,
                                        layout.max_split_tokens);
}

// Sets the pages of a forward problem; packed keys have none.
template <class Problem>
void set_pages(Problem& problem, const AttentionLayout& layout, const Tensor& keys) {
  if (!layout.page_table.defined()) return;
  problem.context_lens = layout.device_context_lens.i32();
  problem.page_table = layout.page_table.i32();
  problem.page_table_stride = layout.page_table.dim(1);
  problem.pages = keys.dim(0);
  problem.page_tokens = layout.page_tokens;
  problem.context_is_written = layout.context_is_written;
}

// Sets the lists of selected keys; without lists a query sees all keys up to its own.
template <class Problem>
void set_lists(Problem& problem, const AttentionLayout& layout) {
  if (!layout.selected.defined()) return;
  problem.selected = layout.selected.i32();
  problem.list_width = layout.selected.dim(1);
}

// The latent form: one key head for all query heads, values are the first elements of the keys.
void latent_forward(const Context& ctx, Tensor out, Tensor lse, Tensor q, const Tensor& keys,
                    const AttentionLayout& layout, float scale) {
  const bool paged = layout.page_table.defined();
  SLX_CHECK(q.is_contiguous());
  kernels::LatentAttentionForward problem{
      .q = q.raw(),
      .keys = keys.raw(),
      .f8_keys = keys.dtype() == tensor::DType::kU8,
      .out = out.raw(),
      .lse = lse.f32(),
      .key_stride = paged ? keys.stride(1) : keys.stride(0),
      .out_stride = out.stride(0),
      .cu_seqlens = layout.device_cu_seqlens.i32(),
      .tokens = q.dim(0),
      .query_heads = q.dim(1),
      .value_dim = out.dim(2),
      .rotary_dim = q.dim(2) - out.dim(2),
      .runs = choose_runs(layout, q.dim(0), kernels::latent_group(q.dim(1))),
      .scale = scale};
  set_pages(problem, layout, keys);
  set_lists(problem, layout);
  problem.workspace_bytes = kernels::latent_attention_forward_workspace(problem);
  const ScratchScope scratch(ctx, problem.workspace_bytes);
  if (ctx.planning() || problem.tokens == 0) return;
  problem.workspace = scratch.data();
  SLX_CUDA(kernels::latent_attention_forward(problem, handle(ctx)));
}

}  // namespace

void attention_forward(const Context& ctx, Tensor out, Tensor lse, Tensor q, const CacheRows& keys,
                       const CacheRows& values, const AttentionLayout& layout, float scale) {
  const Tensor &k = keys.rows, &v = values.rows;
  if (out.dim(2) < q.dim(2)) return latent_forward(ctx, out, lse, q, k, layout, scale);
  const bool paged = layout.page_table.defined();
  kernels::AttentionForward problem{.q = q.raw(),
                                    .k = k.raw(),
                                    .v = v.raw(),
                                    .k_scales = keys.scales.raw(),
                                    .v_scales = values.scales.raw(),
                                    .out = out.raw(),
                                    .lse = lse.f32(),
                                    .q_stride = q.stride(0),
                                    .k_stride = paged ? k.stride(1) : k.stride(0),
                                    .v_stride = paged ? v.stride(1) : v.stride(0),
                                    .out_stride = out.stride(0),
                                    .cu_seqlens = layout.device_cu_seqlens.i32(),
                                    .tokens = q.dim(0),
                                    .query_heads = q.dim(1),
                                    .kv_heads = k.dim(-2),
                                    .head_dim = q.dim(2),
                                    .runs = choose_runs(layout, q.dim(0), q.dim(1) / k.dim(-2)),
                                    .scale = scale};
  set_pages(problem, layout, k);
  problem.workspace_bytes = kernels::attention_forward_workspace(problem);
  const ScratchScope scratch(ctx, problem.workspace_bytes);
  if (ctx.planning() || problem.tokens == 0) return;
  problem.workspace = scratch.data();
  SLX_CUDA(kernels::attention_forward(problem, handle(ctx)));
}

void attention_backward(const Context& ctx, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale) {
  kernels::AttentionBackward problem{.q = q.raw(),
                                     .k = k.raw(),
                                     .v = v.raw(),
                                     .out = out.raw(),
                                     .dout = dout.raw(),
                                     .lse = lse.f32(),
                                     .dq = dq.raw(),
                                     .dk = dk.raw(),
                                     .dv = dv.raw(),
                                     .q_stride = q.stride(0),
                                     .k_stride = k.stride(0),
                                     .v_stride = v.stride(0),
                                     .out_stride = out.stride(0),
                                     .dout_stride = dout.stride(0),
                                     .dq_stride = dq.stride(0),
                                     .dk_stride = dk.stride(0),
                                     .dv_stride = dv.stride(0),
                                     .cu_seqlens = layout.device_cu_seqlens.i32(),
                                     .tokens = q.dim(0),
                                     .sequences = layout.device_cu_seqlens.dim(0) - 1,
                                     .query_heads = q.dim(1),
                                     .kv_heads = k.dim(1),
                                     .head_dim = q.dim(2),
                                     .value_dim = v.dim(2),
                                     .max_len = longest_sequence(layout),
                                     .query_spans = layout.query_spans.i32(),
                                     .scale = scale};
  set_lists(problem, layout);
  problem.workspace_bytes = kernels::attention_backward_workspace(problem);
  const ScratchScope scratch(ctx, problem.workspace_bytes);
  if (ctx.planning() || problem.tokens == 0) return;
  problem.workspace = scratch.data();
  SLX_CUDA(kernels::attention_backward(problem, handle(ctx)));
}

void write_kv_pages(const Context& ctx, Tensor pages, Tensor rows, Tensor slots) {
  SLX_CUDA(kernels::put_rows_in_pages(pages.raw(), rows.raw(), rows.stride(0), slots.i32(),
                                      rows.dim(0), rows.dim(1) * rows.dim(2), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
