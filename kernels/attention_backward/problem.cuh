// The parameters of a launch of the gradient's kernels.
//
// Per query i and key j of one head, with c = scale * log2 e:
//   P_ij = 2^(c q_i k_j - lse_i log2 e), dP_ij = dout_i v_j, D_i = dout_i out_i
//   dS_ij = P_ij (dP_ij - D_i)
//   dV_j = sum_i P_ij dout_i    dK_j = scale sum_i dS_ij q_i    dQ_i = scale sum_j dS_ij k_j
// P and dS are rounded to bf16 before they enter a product, everything else is fp32.
//
// Two kernels instead of one: query_gradients owns queries and walks keys, then key_gradients owns
// keys and walks queries. S and dP are computed twice (7 products where 5 would do), and in return
// every sum has one owner and one order: no block waits for another, no sum depends on the order of
// arrival, and dQ needs no fp32 copy in memory.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels::attention_gradient {

inline constexpr int kTile = 64;         // queries or keys of one step, rows of one warpgroup
inline constexpr int kBlockRows = 128;   // queries or keys that one thread block owns
inline constexpr int kHeadsPerPart = 4;  // a longer group of query heads is summed by parts

struct Counters {
  uint32_t next_key_item, next_query_item;  // 0 at the start of their kernels
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
  int head_dim, value_dim;  // of wide heads, where they are not constants
  int parts, part_heads;    // of a group: parts * part_heads >= group
  float scale;
  float c;  // scale * log2 e
  // [query_heads][padded_tokens], written by query_gradients; a sequence starts at padded_start().
  // Past its last token, up to the next multiple of 128: -inf and 0.
  float* negative_lse;  // -lse * log2 e
  float* delta;         // D
  int64_t padded_tokens;
  // [parts][tokens][kv_heads][head_dim]; null if parts is 1.
  float* partial_dk;
  float* partial_dv;
  // Blocks of all sequences, the longest walks first: first token and length of the sequence, its
  // padded_start, and the blocks of the walk, from 1 to as many as the sequence has. A walk of r
  // blocks is that of queries r - 1 from the front, and of keys r - 1 from the back.
  int4* walks;
  Counters* counters;
  // Where queries have lists of their keys (seen_keys.cu), kTile rows of 64 bits for every pair of
  // a tile of queries and a tile of keys up to it (find_tile_pair): the keys that the row's query
  // sees, and the queries that see the row's key. Null: every query sees all keys up to its own.
  uint2* seen_keys;
  uint2* seeing_queries;
  const int4* query_spans;  // by sequence; null: all queries
};

struct Launch {
  Problem problem;
  CUtensorMap q_map, k_map, v_map, out_map, dout_map;  // boxes of kTile rows x 64 columns
  int head_dim;
};

// First row of a sequence in negative_lse and delta: multiples of 128, far enough apart.
__host__ __device__ inline int64_t padded_start(int64_t first_token, int64_t sequence) {
  return (first_token + sequence * kBlockRows) / kBlockRows * kBlockRows;
}

// The first of a sequence's pairs of tiles. Far enough apart for (t^2 + t) / 2 of them, t the tiles
// of the sequence: with x tokens / kTile before it and d of its own, t < d + 1, and the next one's
// is at least (d + 1) (d + 2) / 2 more. A bound by tokens and sequences alone, like padded_start:
// what is planned for the fullest batches must hold for all.
__host__ __device__ inline int64_t first_tile_pair(int64_t first_token, int64_t sequence) {
  return first_token * (first_token + 3 * kTile) / (2 * kTile * kTile) + 2 * sequence;
}

// The forward's result and its gradient, [tokens, heads, value_dim].
struct WideOutputs {
  const uint16_t* out;
  const uint16_t* dout;
  int64_t out_stride, dout_stride;
};

// Each query's keys: [tokens, width], positions in its sequence, ascending.
struct KeyLists {
  const int32_t* selected;
  int width;
  int tiles;  // of kTile keys, of the longest sequence
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
