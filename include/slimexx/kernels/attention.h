// Attention forward on Hopper (sm_90a): bf16 in and out, fp32 softmax, causal, variable length,
// grouped queries, keys packed or paged. Pages hold bf16 or e4m3. Pointers are device pointers;
// strides count elements. Nothing is allocated, nothing synchronises.
//
// The bits of a query row depend only on its sequence's keys up to its position (N1, N3): not on
// where the keys are stored, the rest of the batch, the chunking of the sequence, or the schedule.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/attention_runs.h"

namespace slimexx::kernels {

// Part of the numeric contract: key blocks and segments start at the sequence's first token. The
// blocks of one segment share a running maximum; segments merge left to right in fp32.
inline constexpr int32_t kAttentionBlockKeys = 128;
inline constexpr int32_t kAttentionSegmentKeys = 1024;

struct AttentionForward {
  const void* q = nullptr;  // [tokens, query_heads, head_dim] bf16
  const void* k =
      nullptr;  // packed: [tokens, kv_heads, head_dim]; paged: [pages * page_tokens, ..]
  const void* v = nullptr;
  // Not null: paged keys and values are e4m3, with one bf16 scale for each token and head:
  // [pages, kv_heads, page_tokens], 16-byte aligned. The kernels compute on the values that
  // qk_norm_rotary_forward returns for the same keys and values, RN_bf16(e4m3 * scale), so the bits
  // are those of bf16 pages that hold these values. The strides are multiples of 16.
  const void* k_scales = nullptr;
  const void* v_scales = nullptr;
  void* out = nullptr;   // [tokens, query_heads, head_dim] bf16
  float* lse = nullptr;  // [tokens, query_heads], natural logarithm; may be null
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;  // from token to token
  const int32_t* cu_seqlens = nullptr;                               // [runs.num_sequences() + 1]
  const int32_t* context_lens = nullptr;                             // [sequences]; null: all 0
  const int32_t* page_table = nullptr;  // [sequences, page_table_stride]; null: packed
  int64_t page_table_stride = 0;
  int64_t pages = 0, page_tokens = 0;  // page_tokens: a power of two >= 16
  // Paged: the lengths, the page table and the keys before context_lens were complete before the
  // previous kernel of the stream started. So this kernel, which may overlap the previous one
  // (early_launch.cuh), reads them without waiting for its end.
  bool context_is_written = false;
  int64_t tokens = 0, query_heads = 0, kv_heads = 0;
  int64_t head_dim = 0;  // 64 or 128
  AttentionRuns runs;    // cover all sequences
  float scale = 0.0f;
  void* workspace = nullptr;  // attention_forward_workspace() bytes, 16-byte aligned
  size_t workspace_bytes = 0;
};

size_t attention_forward_workspace(const AttentionForward& problem);
// cudaErrorInvalidValue: a shape or alignment that the kernels do not support.
cudaError_t attention_forward(const AttentionForward& problem, cudaStream_t stream);

}  // namespace slimexx::kernels
