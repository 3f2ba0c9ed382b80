// A problem of latent attention, its work items, and the layout of shared memory.
//
// Rows are (token, head) pairs in memory order. All heads of a token walk the same keys, so a tile
// of 64 rows is 64 neighbouring rows of the matrix [tokens * heads, width] of queries.
#pragma once
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
inline constexpr int kBoxes = kValueBoxes + 1;  // boxes of 64 columns per row; the last is rotary
inline constexpr uint32_t kBoxBytes = 64 * 128;
inline constexpr uint32_t kTileBytes = kBoxes * kBoxBytes;
inline constexpr int kStages = 2;
// Boxes per full barrier when threads copy the keys (gather.cuh): each barrier costs 128 arrivals.
inline constexpr int kGatheredBoxes = 2;

struct Problem {
  attention::Problem attention;  // here kv_heads is 1, and group is the number of heads
  int value_dim;
  float4* merged;  // outputs merged over segments: [thread block][32][2 warpgroups][128 threads]
};

inline constexpr int kThreads = 384;  // one loading warpgroup, two computing ones

// A work item: a tile of a sequence's rows and a range of its key blocks.
struct Item {
  int rows = 0;             // rows that exist; 0: no more items
  int row = 0;              // first row, counted over the batch
  int row_in_sequence = 0;  // first row, counted within the sequence
  int context = 0;          // keys before the sequence's first row
  int keys = 0;             // keys of the sequence
  int first_block = 0, last_block = 0;
  int sequence = 0;

  __device__ __forceinline__ int position(int tile_row, int group) const {
    return context + (row_in_sequence + tile_row) / group;
  }
};

// Queue of items from the loading warp to the computing warps, two deep.
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

// Finds item `index` of the launch; returns false past the last item. Whole: the tiles of a
// sequence come in descending order of their key counts. Split: the segment changes fastest, so
// that a sequence's keys are read at about the same time; an item may have no blocks.
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

// Adds +0 to turn -0 into +0: the sign of a zero depends on how the row was merged.
__device__ __forceinline__ uint32_t finish_pair(float low, float high, float inverse_sum) {
  return attention::finish_pair(__fadd_rn(low, 0.0f), __fadd_rn(high, 0.0f), inverse_sum);
}

// Shared memory for tiles of kRows rows. Block n, counted over all items of the thread block, uses
// stage n % kStages. `kScratchBytes`: scratch per warpgroup, which depends on the kernel's walk.
template <int kRows, uint32_t kScratchBytes>
struct Shared {
  static constexpr int kQueryRows = kRows;
  static constexpr uint32_t kQueryBoxBytes = kRows * 128;
  static constexpr uint32_t kQueryBytes = kBoxes * kQueryBoxBytes;
  static constexpr uint32_t kStagesAt = kQueryBytes;
  static constexpr uint32_t kMailAt = kStagesAt + kStages * kTileBytes;
  static constexpr uint32_t kMailBytes = kRows * 8;  // maximum and decay per row
  static constexpr uint32_t kSumsAt = kMailAt + 2 * kMailBytes;
  static constexpr uint32_t kSumsBytes = kRows * 4;
  static constexpr uint32_t kScratchAt = kSumsAt + 4 * kSumsBytes;
  static constexpr uint32_t kBarriersAt = kScratchAt + 2 * kScratchBytes;
  // Barriers per stage: full, one per box, so that scores can begin with the first columns; empty,
  // one per half of the values and one for the last box. Then full and empty of the queries.
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
  // A block's weights, [kRows, 64] bf16. The weights overwrite the block's rotary keys after its
  // scores are formed.
  __device__ __forceinline__ uint32_t weights(uint32_t n) const {
    return stage(n) + kValueBoxes * kBoxBytes;
  }
  // Maximum and decay of a row, from the warpgroup that weighs the block to the other warpgroup.
  __device__ __forceinline__ uint32_t mail(int group, int row) const {
    return base + kMailAt + group * kMailBytes + row * 8;
  }
  // Two sets alternate, so that one can be read while the next segment's sums are written.
  __device__ __forceinline__ uint32_t sums(uint32_t turn, int group, int row) const {
    return base + kSumsAt + (turn % 2 * 2 + group) * kSumsBytes + row * 4;
  }
  __device__ __forceinline__ uint32_t scratch(int group) const {
    return base + kScratchAt + group * kScratchBytes;
  }
  __device__ __forceinline__ uint32_t full(uint32_t n, int box) const {
    return base + kBarriersAt + (n % kStages * kBoxes + box) * 8;
  }
  // `part`: 0 or 1: the values of that warpgroup; 2: the last box (rotary keys, then weights),
  // which both warpgroups read.
  __device__ __forceinline__ uint32_t empty(uint32_t n, int part) const {
    return base + kEmptyAt + (n % kStages * 3 + part) * 8;
  }
  __device__ __forceinline__ uint32_t queries_full() const { return base + kQueriesFullAt; }
  __device__ __forceinline__ uint32_t queries_empty() const { return base + kQueriesFullAt + 8; }
  __device__ __forceinline__ ItemQueue items() const { return {{base + kItemsAt, {}}}; }

  // Called by one thread. `loading`: arrivals that complete a full barrier of keys. `takers`: warps
  // that take each item from the queue.
  __device__ __forceinline__ void init(uint32_t loading = 1, uint32_t takers = 8) const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      for (int box = 0; box < kBoxes; ++box) init_mbarrier(full(stage, box), loading);
      for (int part = 0; part < 3; ++part) init_mbarrier(empty(stage, part), part < 2 ? 4 : 8);
    }
    init_mbarrier(queries_full(), 1);
    init_mbarrier(queries_empty(), 8);
    items().init(takers);
    fence_mbarrier_init();
  }
};

// Parity of the barrier phase that completes when block n has been loaded.
__device__ __forceinline__ uint32_t stage_parity(uint32_t n) { return n / kStages % 2; }

}  // namespace slimexx::kernels::latent_attention
