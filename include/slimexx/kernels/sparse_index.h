// The choice of keys for sparse attention (DeepSeek's lightning indexer) on Hopper (sm_90a): scores
// of a run of queries against all keys before them, and each query's best keys. Packed or paged,
// the same in training, prefill and decode. Pointers are device pointers; strides count elements.
// Nothing is allocated, nothing synchronises, and no length is read by the host.
//
// A score's bits depend on its query, that query's weights and its key only (N1): not on where keys
// live, the batch around, the cut into runs, nor the schedule. A selection is exact.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

// Rows [first_row, first_row + rows) of a batch. Sequence b has the batch's rows cu_seqlens[b] to
// cu_seqlens[b + 1], at positions from context_lens[b] on. Rows past the last sequence's are
// padding: they have no scores and select nothing.
struct IndexRows {
  const int32_t* cu_seqlens = nullptr;    // [sequences + 1]
  const int32_t* context_lens = nullptr;  // [sequences]; null: all 0
  int64_t sequences = 0, first_row = 0, rows = 0;
  // Upper bounds; they choose a schedule.
  int64_t max_query_len = 0, max_key_len = 0;
};

// scores[t,j] = sum over heads of (scale * weights[t,h]) * max(0, q[t,h] . k[j]) in fp32, for j up
// to the query's own position. Other scores are not written, and those of a query with at most
// top_k keys may not be either. NaNs propagate. The order of the sum: of heads 2 i, 2 i + 1 modulo
// 8 by a chain of fused multiply-adds from the first, and the four chains as (0 + 1) + (2 + 3).
struct IndexScores {
  IndexRows rows;
  const void* q = nullptr;         // [rows, heads, head_dim] bf16, heads without gaps
  const void* keys = nullptr;      // [key_rows, head_dim] bf16: the batch's rows or pages
  const float* weights = nullptr;  // [rows, heads]
  float* scores = nullptr;         // [rows, a column for each position]
  int64_t q_stride = 0, key_stride = 0, score_stride = 0;  // from row to row
  int64_t heads = 0, head_dim = 0;      // at most kMostIndexHeads; a multiple of 8
  int64_t key_rows = 0;                 // packed: tokens; paged: pages * page_tokens
  const int32_t* page_table = nullptr;  // [sequences, page_table_stride]; null: packed
  int64_t page_table_stride = 0;
  int64_t page_tokens = 0;  // a power of two >= 16
  int64_t top_k = 0;
  float scale = 0.0f;  // above 0
};
// cudaErrorInvalidValue: a shape or alignment that the kernels do not serve.
cudaError_t index_scores(const IndexScores& problem, cudaStream_t stream);

// selected[rows, k]: positions of the k keys with the largest scores, ascending; of equals the
// lower position, NaN as -inf. A query with at most k keys gets all of them, followed by -1.
struct KeySelection {
  IndexRows rows;
  const float* scores = nullptr;  // as above
  int32_t* selected = nullptr;
  int64_t score_stride = 0, k = 0;
};
cudaError_t select_keys(const KeySelection& problem, cudaStream_t stream);

}  // namespace slimexx::kernels
