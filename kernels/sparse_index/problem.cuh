// The parameters of a launch of scores, and its work items.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/sparse_index/runs.cuh"

namespace slimexx::kernels::sparse_index {

inline constexpr int kBlock = 64;          // keys
inline constexpr int kMostColumns = 256;   // (query, head) pairs of a tile
inline constexpr int kScoreThreads = 384;  // a warpgroup that loads, two that compute

struct Problem {
  Rows rows;
  const float* weights;
  float* scores;
  const int32_t* page_table;
  int64_t page_table_stride, score_stride;
  int page_shift;      // log2 of page_tokens
  int box_rows;        // rows of one bulk copy: min(page_tokens, kBlock), or kBlock if packed
  int segment_blocks;  // of an item, at most
  int heads, top_k;
  float scale;
};

struct Launch {
  Problem problem;
  CUtensorMap query_map;         // [rows, heads, head_dim]: boxes of a tile's queries, all heads
  CUtensorMap key_map;           // boxes of problem.box_rows
  int tile_queries, head_boxes;  // heads in boxes of 64 elements
  unsigned grid;
};

// By the heads of a query, padded.
cudaError_t launch_16_heads(const Launch& launch, cudaStream_t stream);
cudaError_t launch_32_heads(const Launch& launch, cudaStream_t stream);
cudaError_t launch_64_heads(const Launch& launch, cudaStream_t stream);

// A tile of neighbouring queries of a sequence against blocks of its keys.
struct Item {
  int rows = 0;                         // that exist; 0: no more items
  int row = 0;                          // the first, of the run
  int position = 0;                     // of the first
  int first_block = 0, last_block = 0;  // equal: nothing to do
  int sequence = 0, first_token = 0;    // for the copies of keys
  __device__ __forceinline__ int keys() const { return position + rows; }
};

// Item `index` of the launch. Tiles run faster than segments, so that keys are read by all of them
// at about the same time.
template <int kQueries>
__device__ __forceinline__ bool find_item(const Problem& p, RunCursor& cursor, int index,
                                          Item& item) {
  const int segment_keys = p.segment_blocks * kBlock;
  const auto count = [&](const SequenceRun& run) {
    if (run.keys() <= p.top_k) return 0;
    return divide_up(run.queries, kQueries) * divide_up(run.keys(), segment_keys);
  };
  int within = 0;
  SequenceRun run;
  item.sequence = cursor.find(p.rows, index, count, within, run);
  if (item.sequence < 0) return false;
  const int tiles = divide_up(run.queries, kQueries), first = within % tiles * kQueries;
  item.rows = min(kQueries, run.queries - first);
  item.row = run.row + first;
  item.position = run.position + first;
  item.first_token = run.first_token;
  item.first_block = within / tiles * p.segment_blocks;
  item.last_block = min(divide_up(item.keys(), kBlock), item.first_block + p.segment_blocks);
  if (item.keys() <= p.top_k || item.last_block < item.first_block) {
    item.last_block = item.first_block;
  }
  return true;
}

}  // namespace slimexx::kernels::sparse_index
