// Work items and the queue that passes them to the computing warps. The loading warp takes items
// from a counter. An item's bits do not depend on the thread block that computes it.
#pragma once
#include <cstdint>

#include "kernels/attention_backward/problem.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/slot_queue.cuh"
#include "kernels/common/warp_release.cuh"

namespace slimexx::kernels::attention_gradient {

// Rows of one head (query_gradients) or of one part of a group (key_gradients): kBlockRows of them,
// or kTile with wide heads.
struct Item {
  int first_token = 0, length = 0;  // first token and length of the sequence
  int padded = 0;                   // padded_start of the sequence
  int block = -1;                   // number of the rows' block in the sequence; -1: no more items
  int head = 0;                     // the query head, or the first query head of the part
  int heads = 0;                    // number of query heads to walk
  int part = 0;
};

// Finds the walk and piece of work item `index`. Each walk has `pieces` consecutive items. Returns
// false past the last walk.
__device__ __forceinline__ bool find_walk(const Problem& problem, int index, int pieces, Item& item,
                                          int& blocks, int& piece) {
  const int walk = index / pieces;
  if (walk >= static_cast<int>(problem.counters->walks)) return false;
  const int4 found = problem.walks[walk];
  item.first_token = found.x;
  item.length = found.y;
  item.padded = found.z;
  blocks = found.w;
  piece = index % pieces;
  return true;
}

// Index of a pair of tiles, one of queries and one of keys, of the item's sequence.
__device__ __forceinline__ int64_t find_tile_pair(const Item& item, int queries, int keys) {
  // The inverse of padded_start.
  const int sequence = item.padded / kBlockRows - item.first_token / kBlockRows;
  return first_tile_pair(item.first_token, sequence) +
         static_cast<int64_t>(queries) * (queries + 1) / 2 + keys;
}

// Query tiles with at least one query whose gradients are requested: [a, b) and [c, d).
struct TileSpans {
  int a, b, c, d;
  __device__ __forceinline__ bool has(int tile) const {
    return (tile >= a && tile < b) || (tile >= c && tile < d);
  }
  __device__ __forceinline__ int count_from(int tile) const {
    return max(0, b - max(a, tile)) + max(0, d - max(c, tile));
  }
  // The first tile of the spans at or after `tile`; d or higher if there is none.
  __device__ __forceinline__ int next(int tile) const {
    return tile < b ? max(tile, a) : max(tile, c);
  }
};

// The spans of the item's sequence.
__device__ __forceinline__ TileSpans find_spans(const Problem& problem, const Item& item) {
  const int4 spans = problem.query_spans[item.padded / kBlockRows - item.first_token / kBlockRows];
  const int end = (spans.y + kTile - 1) / kTile, begin = max(end, spans.z / kTile);
  return {spans.x / kTile, end, begin, max(begin, (spans.w + kTile - 1) / kTile)};
}

// The spans of one key walk. `tiles`: number of query tiles of the spans at or after the walk's
// keys. `first`, `second`: whether the spans have the query tile at the positions of the first and
// of the second 64 keys.
struct WalkSpans {
  int tiles = 0;
  bool first = true, second = true;
};

__device__ __forceinline__ int pack_spans(const TileSpans& spans, int tile) {
  return spans.count_from(tile) * 4 + (spans.has(tile) ? 1 : 0) + (spans.has(tile + 1) ? 2 : 0);
}

struct ItemQueue : SlotQueue {
  // Called by one thread. Each of `consumer_warps` warps releases an item once.
  __device__ __forceinline__ void init(uint32_t consumer_warps) const {
    SlotQueue::init(consumer_warps * kArrivalsPerWarp);
  }
  // Called by the loading warp.
  __device__ __forceinline__ void put(const Item& item) {
    kernels::wait(empty(), cursor.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot()), "r"(item.first_token),
                   "r"(item.length), "r"(item.padded), "r"(item.block)
                   : "memory");
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, 0};" ::"r"(slot() + 16), "r"(item.head),
                   "r"(item.heads), "r"(item.part)
                   : "memory");
      kernels::arrive(full());
    }
    cursor.advance();
  }
  // Also passes the item's spans, packed by pack_spans.
  __device__ __forceinline__ void put(const Item& item, int spans) {
    kernels::wait(empty(), cursor.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot()), "r"(item.first_token),
                   "r"(item.length), "r"(item.padded), "r"(item.block)
                   : "memory");
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot() + 16), "r"(item.head),
                   "r"(item.heads), "r"(item.part), "r"(spans)
                   : "memory");
      kernels::arrive(full());
    }
    cursor.advance();
  }
  // Called by a computing warp. The item stays in shared memory until drop(), so that read() can
  // load it again: the computing warps have no registers to keep it.
  __device__ __forceinline__ Item wait() const {
    kernels::wait(full(), cursor.parity);
    return read();
  }
  __device__ __forceinline__ Item read() const {
    Item item;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(item.first_token), "=r"(item.length), "=r"(item.padded), "=r"(item.block)
                 : "r"(slot())
                 : "memory");
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(item.head), "=r"(item.heads)
                 : "r"(slot() + 16)
                 : "memory");
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(item.part) : "r"(slot() + 24) : "memory");
    return item;
  }
  __device__ __forceinline__ WalkSpans read_spans() const {
    int packed;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(packed) : "r"(slot() + 28) : "memory");
    return {packed >> 2, (packed & 1) != 0, (packed & 2) != 0};
  }
  __device__ __forceinline__ void drop() {
    release(empty());
    cursor.advance();
  }
  // The parity of barriers that complete once per item (the queue is two deep).
  __device__ __forceinline__ uint32_t item_parity() const { return cursor.stage; }
};

}  // namespace slimexx::kernels::attention_gradient
