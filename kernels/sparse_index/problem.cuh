// Parameters of a launch of the score kernel, and its work items.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/sparse_index/runs.cuh"

namespace slimexx::kernels::sparse_index {

inline constexpr int kBlock = 64;          // keys per block
inline constexpr int kMostColumns = 256;   // (query, head) pairs per tile
inline constexpr int kScoreThreads = 384;  // one loading and two computing warpgroups

struct Problem {
  Rows rows;
  const float* weights;
  float* scores;
  const int32_t* page_table;
  int64_t page_table_stride, score_stride;
  int page_shift;  // log2 of page_tokens
  int box_rows;    // rows of one TMA load: min(page_tokens, kBlock), or kBlock if packed
  int heads, top_k;
  float scale;
};

// FP8 keys, paged, with one scale per key.
struct F8Keys {
  const uint8_t* bytes;
  const uint16_t* scales;  // bf16
  int64_t stride;
  int head_dim;
};

struct Launch {
  Problem problem;
  CUtensorMap query_map;         // [rows, heads, head_dim]: a box has a tile's queries, all heads
  CUtensorMap key_map;           // bf16 keys: boxes of problem.box_rows rows
  F8Keys f8_keys;                // bytes not null: instead of key_map
  int tile_queries, head_boxes;  // queries per tile; boxes of 64 elements per head
  unsigned grid;
};

// The kernel for heads per query padded to 16, 32 or 64.
cudaError_t launch_16_heads(const Launch& launch, cudaStream_t stream);
cudaError_t launch_32_heads(const Launch& launch, cudaStream_t stream);
cudaError_t launch_64_heads(const Launch& launch, cudaStream_t stream);

// A work item: a tile of neighbouring queries of a sequence and a range of its key blocks.
struct Item {
  int rows = 0;                         // queries that exist; 0: no more items
  int row = 0;                          // first query, counted within the run
  int position = 0;                     // position of the first query in its sequence
  int first_block = 0, last_block = 0;  // an empty range: nothing to do
  int sequence = 0, first_token = 0;    // used to find the rows of keys
  __device__ __forceinline__ int keys() const { return position + rows; }
};

// A thread block's equal share of the launch: consecutive key blocks, tile after tile. So each
// tile's queries are loaded once, and again by the next thread block if a share ends inside the
// tile. All lanes of a warp call the functions together.
template <int kQueries>
struct Share {
  const Problem& problem;
  RunCursor cursor;
  int next, end;  // this share's range in the launch's key blocks

  __device__ __forceinline__ static int count_blocks(const Problem& p, const SequenceRun& run) {
    if (run.keys() <= p.top_k) return 0;
    return divide_up(run.queries, kQueries) * divide_up(run.keys(), kBlock);
  }

  __device__ __forceinline__ explicit Share(const Problem& p) : problem(p), cursor(p.rows) {
    int own = 0;
#pragma unroll 4
    for (int b = cursor.begin_sequence() + static_cast<int>(threadIdx.x % 32);
         b < cursor.end_sequence; b += 32) {
      own += count_blocks(p, read_run(p.rows, b));
    }
    const int64_t total = __reduce_add_sync(0xffffffffu, own);
    next = static_cast<int>(total * blockIdx.x / gridDim.x);
    end = static_cast<int>(total * (blockIdx.x + 1) / gridDim.x);
  }

  __device__ __forceinline__ bool take(Item& item) {
    if (next >= end) return false;
    int within = 0;
    SequenceRun run;
    item.sequence = cursor.find(
        problem.rows, next, [&](const SequenceRun& r) { return count_blocks(problem, r); }, within,
        run);
    const int blocks = divide_up(run.keys(), kBlock), first = within / blocks * kQueries;
    item.rows = min(kQueries, run.queries - first);
    item.row = run.row + first;
    item.position = run.position + first;
    item.first_token = run.first_token;
    item.first_block = within % blocks;
    const int count = min(blocks - item.first_block, end - next);
    next += count;
    // The tile's queries may not see the run's last blocks, or may need no scores at all (at most
    // top_k keys).
    item.last_block = item.keys() <= problem.top_k
                          ? item.first_block
                          : min(divide_up(item.keys(), kBlock), item.first_block + count);
    return true;
  }
};

}  // namespace slimexx::kernels::sparse_index
