// Gradients of causal, variable-length, grouped-query attention over packed rows (sm_90a): bf16 in
// and out, fp32 accumulation. Pointers are device pointers; strides count elements from token to
// token. Nothing is allocated, nothing synchronises. The same bits every run: no sum depends on the
// order of arrival. A sequence's gradients do not depend on the other sequences of the batch. Rows
// outside all sequences are not written.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

struct AttentionBackward {
  const void* q = nullptr;     // [tokens, query_heads, head_dim] bf16
  const void* k = nullptr;     // [tokens, kv_heads, head_dim]
  const void* v = nullptr;     // [tokens, kv_heads, value_dim]
  const void* out = nullptr;   // [tokens, query_heads, value_dim], the forward's result
  const void* dout = nullptr;  // gradient of out
  const float* lse = nullptr;  // [tokens, query_heads], natural logarithm, from the forward
  void* dq = nullptr;          // written, not added to
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, dout_stride = 0;
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  const int32_t* cu_seqlens = nullptr;  // [sequences + 1]
  int64_t tokens = 0, sequences = 0, query_heads = 0, kv_heads = 0;
  // Both 64 or both 128. If kv_heads == query_heads, any multiples of 8 up to kMostWideHeadDim.
  int64_t head_dim = 0, value_dim = 0;
  int64_t max_len = 0;  // upper bound over the sequences, known on the host; at most tokens
  // Sparse attention, needs kv_heads == query_heads: the keys that each query sees, [tokens,
  // list_width], in the form of LatentAttentionForward::selected.
  const int32_t* selected = nullptr;
  int64_t list_width = 0;  // 0: no lists
  // [sequences, 4], ascending: only the queries at positions [s[0], s[1]) and [s[2], s[3]) of a
  // sequence need gradients. All others must have zeros in q, out, dout and lse; their dq is
  // either not written or set to zero. Null: all queries. Not with lists.
  const int32_t* query_spans = nullptr;
  float scale = 0.0f;
  void* workspace = nullptr;  // attention_backward_workspace() bytes, 128-byte aligned
  size_t workspace_bytes = 0;
};

// In bytes. Depends only on tokens, heads, head_dim, sequences, max_len and list_width.
size_t attention_backward_workspace(const AttentionBackward& problem);
// cudaErrorInvalidValue: a shape or alignment that the kernels do not support.
cudaError_t attention_backward(const AttentionBackward& problem, cudaStream_t stream);

}  // namespace slimexx::kernels
