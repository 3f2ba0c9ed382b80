// Parameters of a launch of the gradient kernels.
//
// For query i and key j of one head, with c = scale * log2 e:
//   P_ij = 2^(c q_i k_j - lse_i log2 e), dP_ij = dout_i v_j, D_i = dout_i out_i
//   dS_ij = P_ij (dP_ij - D_i)
//   dV_j = sum_i P_ij dout_i    dK_j = scale sum_i dS_ij q_i    dQ_i = scale sum_j dS_ij k_j
// P and dS are rounded to bf16 before they enter a product; everything else is fp32.
//
// There are two kernels: query_gradients owns queries and walks keys, then key_gradients owns keys
// and walks queries. S and dP are computed twice (7 products instead of 5). In return every sum has
// one owner and one order: no block waits for another, no sum depends on the order of arrival, and
// dQ needs no fp32 copy in memory.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels::attention_gradient {

inline constexpr int kTile = 64;         // queries or keys per step, rows per warpgroup
inline constexpr int kBlockRows = 128;   // queries or keys that one thread block owns
inline constexpr int kHeadsPerPart = 4;  // a larger group of query heads is summed in parts

struct Counters {
  uint32_t next_key_item, next_query_item;  // each is 0 when its kernel starts
  uint32_t walks;
};

struct Problem {
  const float* lse;
  uint16_t* dq;
  uint16_t* dk;
  uint16_t* dv;
  int64_t dq_stride, dk_stride, dv_stride;
  const int32_t* cu_seqlens;
  int64_t tokens;
  int sequences, query_heads, kv_heads, group;
  int head_dim, value_dim;  // for wide heads; the other kernels have template parameters
  int parts, part_heads;    // a group has `parts` parts of up to part_heads query heads
  float scale;
  float c;  // scale * log2 e
  // [query_heads][padded_tokens], written by query_gradients or wide_statistics. A sequence starts
  // at padded_start(). Past its last token, up to the next multiple of 128, negative_lse is -inf
  // and delta is 0.
  float* negative_lse;  // -lse * log2 e
  float* delta;         // D
  int64_t padded_tokens;
  // [parts][tokens][kv_heads][head_dim]; null if parts is 1.
  float* partial_dk;
  float* partial_dv;
  // One walk for each block of kBlockRows rows of all sequences, the longest walks first: first
  // token and length of the sequence, its padded_start, and the walk's number of blocks. A walk of
  // r blocks belongs to query block r - 1, or to the key block with r - 1 blocks after it.
  int4* walks;
  Counters* counters;
  // Sparse attention (seen_keys.cu): kTile rows of 64 bits for every pair of a query tile and a key
  // tile up to the diagonal (find_tile_pair). A row of seen_keys has the keys that one query sees;
  // a row of seeing_queries has the queries that see one key. Null: plain causal mask.
  uint2* seen_keys;
  uint2* seeing_queries;
  const int4* query_spans;  // per sequence; null: gradients of all queries
};

struct Launch {
  Problem problem;
  CUtensorMap q_map, k_map, v_map, out_map, dout_map;  // boxes of kTile rows x 64 columns
  int head_dim;
};

// First row of a sequence in negative_lse and delta: a multiple of 128 that leaves room for the
// padded rows of the sequences before it.
__host__ __device__ inline int64_t padded_start(int64_t first_token, int64_t sequence) {
  return (first_token + sequence * kBlockRows) / kBlockRows * kBlockRows;
}

// Number of the first tile pair of a sequence. A sequence of t tiles needs (t^2 + t) / 2 pairs:
// with x = first_token / kTile and d = length / kTile (fractions), t < d + 1, and the next
// sequence's first pair is at least (d + 1) (d + 2) / 2 higher. The number depends only on tokens
// and sequences, as padded_start does, so that memory planned for the largest batch suffices for
// all batches.
__host__ __device__ inline int64_t first_tile_pair(int64_t first_token, int64_t sequence) {
  return first_token * (first_token + 3 * kTile) / (2 * kTile * kTile) + 2 * sequence;
}

// The forward's result and its gradient, [tokens, heads, value_dim].
struct WideOutputs {
  const uint16_t* out;
  const uint16_t* dout;
  int64_t out_stride, dout_stride;
};

// The keys that each query sees: [tokens, width], positions in its sequence, ascending.
struct KeyLists {
  const int32_t* selected;
  int width;
  int tiles;  // tiles of kTile keys in the longest sequence
};

cudaError_t launch_list_walks(const Launch& launch, cudaStream_t stream);
cudaError_t launch_query_gradients(const Launch& launch, int sm_count, cudaStream_t stream);
cudaError_t launch_query_gradients_of_spans(const Launch& launch, int sm_count,
                                            cudaStream_t stream);
cudaError_t launch_key_gradients(const Launch& launch, int sm_count, cudaStream_t stream);
cudaError_t launch_wide_statistics(const Launch& launch, const WideOutputs& outputs,
                                   cudaStream_t stream);
cudaError_t launch_mark_seen_keys(const Launch& launch, const KeyLists& lists, cudaStream_t stream);
cudaError_t launch_wide_query_gradients(const Launch& launch, int sm_count, cudaStream_t stream);
cudaError_t launch_wide_key_gradients(const Launch& launch, int sm_count, cudaStream_t stream);
cudaError_t launch_sum_parts(const Launch& launch, cudaStream_t stream);

}  // namespace slimexx::kernels::attention_gradient
