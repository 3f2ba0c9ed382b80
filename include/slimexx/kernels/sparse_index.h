// Key selection for sparse attention (DeepSeek's lightning indexer) on Hopper (sm_90a): scores of a
// range of queries for all keys up to their positions, and each query's best keys. Packed or paged,
// the same in training, prefill and decode. Pointers are device pointers; strides count elements.
// Nothing is allocated, nothing synchronises, and no length is read by the host.
//
// The bits of a score depend only on its query, that query's weights and its key (N1): not on where
// keys are stored, the rest of the batch, its division into ranges, or the schedule. The selection
// is exact.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

// Rows [first_row, first_row + rows) of a batch. Sequence b has rows [cu_seqlens[b], cu_seqlens[b +
// 1]) of the batch; its first row is at position context_lens[b]. Rows after the last sequence are
// padding: they get no scores and select nothing.
struct IndexRows {
  const int32_t* cu_seqlens = nullptr;    // [sequences + 1]
  const int32_t* context_lens = nullptr;  // [sequences]; null: all 0
  int64_t sequences = 0, first_row = 0, rows = 0;
  // Upper bounds over the sequences; used only to choose the schedule.
  int64_t max_query_len = 0, max_key_len = 0;
};

// scores[t,j] = sum over heads of (scale * weights[t,h]) * max(0, q[t,h] . k[j]) in fp32, for j up
// to the query's own position. Other scores are not written. A query with at most top_k keys needs
// no scores, and may get none. NaNs propagate. The order of the sum is fixed: chain i of four adds
// the heads that are 2 i or 2 i + 1 modulo 8, ascending, by fused multiply-adds; the chains are
// added as (0 + 1) + (2 + 3).
struct IndexScores {
  IndexRows rows;
  const void* q = nullptr;     // [rows, heads, head_dim] bf16, heads without gaps
  const void* keys = nullptr;  // [key_rows, head_dim] bf16: the batch's rows or pages
  // Not null: keys are e4m3, [pages * page_tokens, head_dim] with key_stride in bytes, and each key
  // has one bf16 scale here, [pages * page_tokens]. Keys must be paged, and head_dim and key_stride
  // multiples of 16. The bits are those of bf16 keys with the dequantised values.
  const void* key_scales = nullptr;
  const float* weights = nullptr;  // [rows, heads]
  float* scores = nullptr;         // [rows, score_stride]: one column per position
  int64_t q_stride = 0, key_stride = 0, score_stride = 0;  // from row to row
  int64_t heads = 0, head_dim = 0;      // at most kMostIndexHeads; a multiple of 8
  int64_t key_rows = 0;                 // packed: tokens; paged: pages * page_tokens
  const int32_t* page_table = nullptr;  // [sequences, page_table_stride]; null: packed
  int64_t page_table_stride = 0;
  int64_t page_tokens = 0;  // a power of two >= 16
  int64_t top_k = 0;
  float scale = 0.0f;  // above 0
};
// cudaErrorInvalidValue: a shape or alignment that the kernels do not support.
cudaError_t index_scores(const IndexScores& problem, cudaStream_t stream);

// selected[rows, k]: positions of the k keys with the largest scores, in ascending order. Ties go
// to the lower position; NaN counts as -inf. A query with at most k keys gets all of them, followed
// by -1.
struct KeySelection {
  IndexRows rows;
  const float* scores = nullptr;  // from index_scores
  int32_t* selected = nullptr;
  int64_t score_stride = 0, k = 0;
};
cudaError_t select_keys(const KeySelection& problem, cudaStream_t stream);

}  // namespace slimexx::kernels
