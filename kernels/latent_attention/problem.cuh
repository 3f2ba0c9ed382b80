// The parameters of a launch of latent attention, its work items, and the layout of shared memory.
//
// Rows are (token, head) pairs, as they stand in memory: all heads of a token walk the same keys,
// so a tile of 64 rows is 64 neighbouring rows of the queries seen as one matrix.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "kernels/attention/problem.cuh"
#include "kernels/common/sizes.h"
#include "kernels/common/slot_queue.cuh"
#include "slimexx/kernels/latent_attention.h"

namespace slimexx::kernels::latent_attention {

using attention::read_sequence;
using attention::Sequence;
using attention::WorkCursor;

inline constexpr int kTileRows = 64;
inline constexpr int kMostFewRows = kLatentFewRows;
inline constexpr int kBlock = kLatentBlockKeys;
inline constexpr int kSegmentBlocks = kLatentSegmentKeys / kLatentBlockKeys;
static_assert(kSegmentBlocks % 2 == 0, "blocks alternate between the warpgroups, segments do not");
inline constexpr int kValues = kMostLatentValues;  // columns of an output, zeros past value_dim
inline constexpr int kValueBoxes = kValues / 64;
inline constexpr int kBoxes = kValueBoxes + 1;  // of 64 columns in a row; the last is rotary
inline constexpr uint32_t kBoxBytes = 64 * 128;
inline constexpr uint32_t kTileBytes = kBoxes * kBoxBytes;
inline constexpr int kStages = 2;
// Boxes that a full barrier stands for, where threads copy keys: 128 arrivals each are dear.
inline constexpr int kGatheredBoxes = 2;

struct Problem {
  attention::Problem attention;  // kv_heads is 1, group all heads
  int value_dim;
  float4* merged;  // of walks through several segments: [thread block][32][2 warpgroups][128]
};

// Each query's keys, where it does not see all of them.
struct KeyLists {
  const int32_t* selected;  // [tokens, width], positions in the query's sequence, ascending
  int width;
  int rotary_dim;
  const uint16_t* keys;  // rows of all pages, or of the batch
  int64_t key_stride;
};

struct Launch {
  Problem problem;
  KeyLists lists;
  CUtensorMap query_map, query_rotary_map;  // boxes of query_rows rows
  CUtensorMap key_map, key_rotary_map;      // boxes of problem.attention.box_rows
  int64_t tokens;
  int max_segments;
  int query_rows;  // of a tile
};

inline constexpr int kThreads = 384;  // a warpgroup that loads, two that compute

// Sequences of any length, a thread block for all keys of a tile.
cudaError_t launch_whole(const Launch& launch, cudaStream_t stream);
// A thread block for each segment of keys; merged.
cudaError_t launch_split(const Launch& launch, cudaStream_t stream);
// The same where a sequence has at most kMostFewRows rows.
cudaError_t launch_few_rows(const Launch& launch, cudaStream_t stream);
// The same with a cluster of thread blocks for each segment, of which there are few.
inline constexpr int kMostClusters = 16;  // that the chip holds at a time
cudaError_t launch_cluster_rows(const Launch& launch, cudaStream_t stream);
// Sequences of any length whose queries have lists of their keys.
cudaError_t launch_listed(const Launch& launch, cudaStream_t stream);
cudaError_t launch_merge(const Launch& launch, cudaStream_t stream);

// A tile of a sequence's rows against blocks of its keys.
struct Item {
  int rows = 0;             // that exist; 0: no more items
  int row = 0;              // of the batch
  int row_in_sequence = 0;  // the same within the sequence
  int context = 0;          // keys before the sequence's first row
  int keys = 0;             // of the sequence
  int first_block = 0, last_block = 0;
  int sequence = 0;

  __device__ __forceinline__ int position(int tile_row, int group) const {
    return context + (row_in_sequence + tile_row) / group;
  }
};

// Two deep, from the loading warp to the computing ones.
struct ItemQueue : SlotQueue {
  __device__ __forceinline__ void put(const Item& item) {
    wait(empty(), cursor.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot()), "r"(item.rows),
                   "r"(item.row), "r"(item.row_in_sequence), "r"(item.context)
                   : "memory");
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot() + 16), "r"(item.keys),
                   "r"(item.first_block), "r"(item.last_block), "r"(item.sequence)
                   : "memory");
      arrive(full());
    }
    cursor.advance();
  }
  __device__ __forceinline__ Item take() {
    wait(full(), cursor.parity);
    Item item;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(item.rows), "=r"(item.row), "=r"(item.row_in_sequence), "=r"(item.context)
                 : "r"(slot())
                 : "memory");
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(item.keys), "=r"(item.first_block), "=r"(item.last_block),
                   "=r"(item.sequence)
                 : "r"(slot() + 16)
                 : "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty());
    cursor.advance();
    return item;
  }
};

// Item `index` of the launch. Whole: the longest walks of a sequence come first. Split: segments
// run fastest, so that a sequence's keys are read at about the same time; an item may be empty.
template <bool kWhole, int kRows>
__device__ __forceinline__ bool find_item(const attention::Problem& problem, WorkCursor& cursor,
                                          int index, Item& item) {
  const auto count_tiles = [&](const Sequence& s) {
    return divide_up(s.queries * problem.group, kRows);
  };
  const auto count_segments = [&](const Sequence& s) {
    return kWhole ? 1 : divide_up(s.keys(), kLatentSegmentKeys);
  };
  int within = 0;
  item.sequence = cursor.find(problem, index, within, [&](const Sequence& s) {
    return count_tiles(s) * count_segments(s);
  });
  if (item.sequence < 0) return false;
  const Sequence s = read_sequence(problem, item.sequence);
  const int segments = count_segments(s);
  const int tile = kWhole ? count_tiles(s) - 1 - within : within / segments;
  item.row_in_sequence = tile * kRows;
  item.rows = min(kRows, s.queries * problem.group - item.row_in_sequence);
  item.row = s.first_token * problem.group + item.row_in_sequence;
  item.context = s.context;
  item.keys = s.keys();
  const int end = item.position(item.rows - 1, problem.group) / kBlock + 1;
  item.first_block = kWhole ? 0 : within % segments * kSegmentBlocks;
  item.last_block = kWhole ? end : min(end, item.first_block + kSegmentBlocks);
  return true;
}

// A zero's sign would tell how the row was merged.
__device__ __forceinline__ uint32_t finish_pair(float low, float high, float inverse_sum) {
  return attention::finish_pair(__fadd_rn(low, 0.0f), __fadd_rn(high, 0.0f), inverse_sum);
}

// Shared memory for tiles of kRows rows. Block n of the launch's walk lies in stage n % kStages.
// `kScratchBytes`: of a warpgroup, for the form of the walk.
template <int kRows, uint32_t kScratchBytes>
struct Shared {
  static constexpr int kQueryRows = kRows;
  static constexpr uint32_t kQueryBoxBytes = kRows * 128;
  static constexpr uint32_t kQueryBytes = kBoxes * kQueryBoxBytes;
  static constexpr uint32_t kStagesAt = kQueryBytes;
  static constexpr uint32_t kMailAt = kStagesAt + kStages * kTileBytes;
  static constexpr uint32_t kMailBytes = kRows * 8;  // maximum and decay of a row
  static constexpr uint32_t kSumsAt = kMailAt + 2 * kMailBytes;
  static constexpr uint32_t kSumsBytes = kRows * 4;
  static constexpr uint32_t kScratchAt = kSumsAt + 4 * kSumsBytes;
  static constexpr uint32_t kBarriersAt = kScratchAt + 2 * kScratchBytes;
  // Of a stage: full, a barrier for each box, so that scores begin with the first columns; empty,
  // of each half of the values and of the last box. Then the queries' full and empty.
  static constexpr uint32_t kEmptyAt = kBarriersAt + kStages * kBoxes * 8;
  static constexpr uint32_t kQueriesFullAt = kEmptyAt + kStages * 3 * 8;
  static constexpr uint32_t kItemsAt = (kQueriesFullAt + 16 + 15) / 16 * 16;
  static constexpr uint32_t kBytes = kItemsAt + SlotQueue::kBytes;
  static_assert(kBytes <= 232448 && kBarriersAt % 16 == 0 && kQueryBytes % 1024 == 0);
  uint32_t base;

  __device__ __forceinline__ uint32_t queries() const { return base; }
  __device__ __forceinline__ uint32_t stage(uint32_t n) const {
    return base + kStagesAt + n % kStages * kTileBytes;
  }
  // Once a block's scores are formed, its rotary keys give way to its weights: [kRows, 64] bf16.
  __device__ __forceinline__ uint32_t weights(uint32_t n) const {
    return stage(n) + kValueBoxes * kBoxBytes;
  }
  // Of the warpgroup that weighs a block, for the other one.
  __device__ __forceinline__ uint32_t mail(int group, int row) const {
    return base + kMailAt + group * kMailBytes + row * 8;
  }
  // Two sets in turn: one is read while the next segment's is written.
  __device__ __forceinline__ uint32_t sums(uint32_t turn, int group, int row) const {
    return base + kSumsAt + (turn % 2 * 2 + group) * kSumsBytes + row * 4;
  }
  __device__ __forceinline__ uint32_t scratch(int group) const {
    return base + kScratchAt + group * kScratchBytes;
  }
  __device__ __forceinline__ uint32_t full(uint32_t n, int box) const {
    return base + kBarriersAt + (n % kStages * kBoxes + box) * 8;
  }
  // `part`: the values of warpgroup 0 or 1; 2: the last box, which both read as weights.
  __device__ __forceinline__ uint32_t empty(uint32_t n, int part) const {
    return base + kEmptyAt + (n % kStages * 3 + part) * 8;
  }
  __device__ __forceinline__ uint32_t queries_full() const { return base + kQueriesFullAt; }
  __device__ __forceinline__ uint32_t queries_empty() const { return base + kQueriesFullAt + 8; }
  __device__ __forceinline__ ItemQueue items() const { return {{base + kItemsAt, {}}}; }

  // One thread. `loading`: arrivals at a full barrier of keys.
  __device__ __forceinline__ void init(uint32_t loading = 1) const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      for (int box = 0; box < kBoxes; ++box) init_mbarrier(full(stage, box), loading);
      for (int part = 0; part < 3; ++part) init_mbarrier(empty(stage, part), part < 2 ? 4 : 8);
    }
    init_mbarrier(queries_full(), 1);
    init_mbarrier(queries_empty(), 8);
    items().init(8);
    fence_mbarrier_init();
  }
};

// The parity that completes with the n-th use of a stage.
__device__ __forceinline__ uint32_t stage_parity(uint32_t n) { return n / kStages % 2; }

}  // namespace slimexx::kernels::latent_attention
