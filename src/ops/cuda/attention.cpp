#include "slimexx/kernels/attention.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "slimexx/kernels/attention_backward.h"

namespace slimexx::ops::cuda {
namespace {

struct Bounds {
  int64_t query_len = 0, key_len = 0;
};

Bounds bounds_of(const AttentionLayout& layout) {
  Bounds bounds{layout.max_query_len, layout.max_key_len};
  if (bounds.query_len > 0 && bounds.key_len > 0) return bounds;
  bounds = {};
  for (size_t b = 0; b + 1 < layout.cu_seqlens.size(); ++b) {
    const int64_t queries = layout.cu_seqlens[b + 1] - layout.cu_seqlens[b];
    const int64_t context = layout.context_lens.empty() ? 0 : layout.context_lens[b];
    bounds.query_len = std::max(bounds.query_len, queries);
    bounds.key_len = std::max(bounds.key_len, queries > 0 ? context + queries : 0);
  }
  return bounds;
}

}  // namespace

void attention_forward(Stream stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                       const AttentionLayout& layout, float scale) {
  const bool paged = layout.page_table.defined();
  const Bounds bounds = bounds_of(layout);
  kernels::AttentionForward problem{.q = q.raw(),
                                    .k = k.raw(),
                                    .v = v.raw(),
                                    .out = out.raw(),
                                    .lse = lse.f32(),
                                    .q_stride = q.stride(0),
                                    .k_stride = paged ? k.stride(1) : k.stride(0),
                                    .v_stride = paged ? v.stride(1) : v.stride(0),
                                    .out_stride = out.stride(0),
                                    .cu_seqlens = layout.device_cu_seqlens.i32(),
                                    .tokens = q.dim(0),
                                    .sequences = layout.device_cu_seqlens.dim(0) - 1,
                                    .query_heads = q.dim(1),
                                    .kv_heads = k.dim(-2),
                                    .head_dim = q.dim(2),
                                    .max_query_len = bounds.query_len,
                                    .max_key_len = bounds.key_len,
                                    .scale = scale};
  if (paged) {
    problem.context_lens = layout.device_context_lens.i32();
    problem.page_table = layout.page_table.i32();
    problem.page_table_stride = layout.page_table.dim(1);
    problem.pages = k.dim(0);
    problem.page_tokens = layout.page_tokens;
  }
  problem.workspace_bytes = kernels::attention_forward_workspace(problem);
  const ScratchScope scratch("attention_forward", stream, problem.workspace_bytes);
  if (stream.is_planning || problem.tokens == 0) return;
  problem.workspace = scratch.data();
  SLX_CUDA(kernels::attention_forward(problem, handle(stream)));
}

void attention_backward(Stream stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
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
                                     .max_len = bounds_of(layout).query_len,
                                     .scale = scale};
  problem.workspace_bytes = kernels::attention_backward_workspace(problem);
  const ScratchScope scratch("attention_backward", stream, problem.workspace_bytes);
  if (stream.is_planning || problem.tokens == 0) return;
  problem.workspace = scratch.data();
  SLX_CUDA(kernels::attention_backward(problem, handle(stream)));
}

}  // namespace slimexx::ops::cuda
