// Forward of multi-head latent attention on Hopper (sm_90a), for training, prefill and decode: all
// query heads share one key row per token, and the first elements of the row are the values. bf16
// in and out, fp32 softmax, causal, variable length, packed or paged. Pointers are device pointers;
// strides count elements. Nothing is allocated, nothing synchronises.
//
// The bits of a query row depend only on the keys that it sees (N1, N3): those of its sequence up
// to its position, or those in its list. The bits do not depend on where the keys are stored, the
// rest of the batch, the chunking of the sequence, or the schedule. A list of all keys gives the
// same bits as no list.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/attention_runs.h"
#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

// Part of the numeric contract, like kAttentionBlockKeys in attention.h. A segment has an even
// number of blocks.
inline constexpr int32_t kLatentBlockKeys = 64;
inline constexpr int32_t kLatentSegmentKeys = 2048;

struct LatentAttentionForward {
  const void* q = nullptr;     // [tokens, query_heads, value_dim + rotary_dim] bf16, contiguous
  const void* keys = nullptr;  // [tokens or pages * page_tokens, value_dim + rotary_dim]
  // Keys in FP8, as latent_rows_forward writes them: `keys` has rows of
  // tensor::latent_f8_row_bytes(value_dim, rotary_dim) bytes, and key_stride counts bytes, a
  // multiple of 16. Keys must be paged. The bits are those of bf16 keys with the dequantised
  // values.
  bool f8_keys = false;
  void* out = nullptr;                     // [tokens, query_heads, value_dim] bf16
  float* lse = nullptr;                    // [tokens, query_heads], natural logarithm; may be null
  int64_t key_stride = 0, out_stride = 0;  // from token to token
  const int32_t* cu_seqlens = nullptr;     // [runs.num_sequences() + 1]
  const int32_t* context_lens = nullptr;   // [sequences]; null: all 0
  const int32_t* page_table = nullptr;     // [sequences, page_table_stride]; null: packed
  int64_t page_table_stride = 0;
  int64_t pages = 0, page_tokens = 0;  // page_tokens: a power of two >= 16
  bool context_is_written = false;     // see AttentionForward
  int64_t tokens = 0, query_heads = 0;
  int64_t value_dim = 0, rotary_dim = 0;  // multiples of 8, at most those of limits.h
  AttentionRuns runs;                     // cover all sequences; group: latent_group(query_heads)
  // Sparse attention: the keys that each query sees, [tokens, list_width], as positions in its
  // sequence, ascending. The query at position p has min(p + 1, list_width) entries; later ones are
  // not read. Blocks and segments count list entries.
  const int32_t* selected = nullptr;
  int64_t list_width = 0;  // 0: no lists, all keys up to the query's position
  float scale = 0.0f;
  void* workspace = nullptr;  // latent_attention_forward_workspace() bytes, 16-byte aligned
  size_t workspace_bytes = 0;
};

// Upper bound on the (token, head) rows per sequence for the kernels of few rows: one token of 32
// heads.
inline constexpr int64_t kLatentFewRows = 32;

// The `group` to pass to choose_attention_runs, whose bounds are made for grouped queries. With
// this value a sequence of one query is in `few` if query_heads <= kLatentFewRows, otherwise in
// `split`.
inline int64_t latent_group(int64_t query_heads) {
  if (query_heads <= kFewAttentionRows) return query_heads;
  return query_heads <= kLatentFewRows ? kFewAttentionRows : kSplitAttentionRows;
}

size_t latent_attention_forward_workspace(const LatentAttentionForward& problem);
// cudaErrorInvalidValue: a shape or alignment that the kernels do not support.
cudaError_t latent_attention_forward(const LatentAttentionForward& problem, cudaStream_t stream);

}  // namespace slimexx::kernels
