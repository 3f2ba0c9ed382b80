// Parameters of a launch, and the map from a work index to a sequence and a piece of its work.
#pragma once
#include <cstdint>

#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/common/sizes.h"

namespace slimexx::kernels::attention {

// One run of sequences (AttentionRuns). Token numbers count from the start of the whole batch.
struct Problem {
  const uint16_t* q;
  uint16_t* out;
  float* lse;
  const int32_t* cu_seqlens;
  const int32_t* context_lens;
  const int32_t* page_table;
  int64_t q_stride, out_stride, page_table_stride;
  int page_shift;           // log2 of page_tokens
  int box_rows;             // rows of one TMA load: min(page_tokens, kBlock), or kBlock if packed
  bool context_is_written;  // see AttentionForward
  int sequences, query_heads, kv_heads, group;
  float scale;
  float c;                              // scale * log2 e
  int max_rows;                         // upper bound on query rows of a sequence for one kv head
  int64_t partial_rows;                 // query rows of all split sequences, for one kv head
  float* partial_output;                // [segments][kv_heads][partial_rows][head_dim]
  float2* partial_state;                // [segments][kv_heads][partial_rows]: maximum, sum
  uint32_t* next_tile;                  // tile counter of whole_rows.cu; 0 at the start of a launch
  const uint16_t *k_scales, *v_scales;  // FP8 pages: see AttentionForward; null: bf16
};

// Number of key blocks (of `block_keys` keys) that may be read before the previous kernels end.
__device__ __forceinline__ int count_written_blocks(const Problem& problem, int context,
                                                    int block_keys) {
  return problem.context_is_written ? context / block_keys : 0;
}

struct Sequence {
  int first_token, queries, context;
  __device__ __forceinline__ int keys() const { return context + queries; }
};

__device__ __forceinline__ Sequence read_sequence(const Problem& problem, int index) {
  Sequence sequence;
  sequence.first_token = problem.cu_seqlens[index];
  sequence.queries = problem.cu_seqlens[index + 1] - sequence.first_token;
  sequence.context = problem.context_lens != nullptr ? problem.context_lens[index] : 0;
  return sequence;
}

// Row index into partial_output and partial_state. Split sequences come first in the batch, so
// their token numbers also number the partial rows.
__device__ __forceinline__ int64_t partial_row(const Problem& problem, int segment,
                                               const Sequence& sequence, int head, int row) {
  return (static_cast<int64_t>(segment) * problem.kv_heads + head) * problem.partial_rows +
         static_cast<int64_t>(sequence.first_token) * problem.group + row;
}

// Maps ascending work indices to sequences; all lanes of a warp call find() together. The warp
// looks at 32 sequences at a time. `count` gives the number of pieces of a sequence.
struct WorkCursor {
  int first_sequence = 0;  // first of the current 32 sequences
  int before = 0;          // pieces of all sequences before first_sequence

  // Returns the sequence that `index` falls in and sets `piece` within it; -1 past the end.
  template <class Count>
  __device__ __forceinline__ int find(const Problem& problem, int index, int& piece,
                                      const Count& count) {
    const int lane = threadIdx.x % 32;
    while (first_sequence < problem.sequences) {
      const int mine = first_sequence + lane;
      const int pieces = mine < problem.sequences ? count(read_sequence(problem, mine)) : 0;
      int through = pieces;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, through, step);
        if (lane >= step) through += other;
      }
      const int total = __shfl_sync(0xffffffffu, through, 31);
      if (index < before + total) {
        const uint32_t holds = __ballot_sync(0xffffffffu, index < before + through);
        const int owner = __ffs(holds) - 1;
        piece = index - before - __shfl_sync(0xffffffffu, through - pieces, owner);
        return first_sequence + owner;
      }
      before += total;
      first_sequence += 32;
    }
    return -1;
  }
};

}  // namespace slimexx::kernels::attention
