// The producer for FP8 keys: a warpgroup of four warps, each of which dequantises 16 rows of every
// block (f8_keys.cuh). It fills the same stages with the same values as a producer of bf16 keys
// would, so the consumers are the same. Bytes go through registers, not through shared memory,
// which has no room for them.
//
// Warp 0 finds the items and loads their queries; the other warps take the items from the queue, as
// the consumers do. All warps look two blocks ahead, over the ends of items: one block is stored
// while the next one is in flight and the rows of the one after that are looked up.
//
// Cost of a block: 41 KB take 2250 clocks at 4.27 TB/s over 132 SMs. A warp dequantises 8192 values
// in about 1060 instructions, 1450 clocks (counted in the machine code, without waits). The block
// is written to shared memory in 576 clocks at 128 B/clk. In few_rows.cu 16 rows per warp are in
// flight, 32 KB. rows.cu and listed_rows.cu, which mostly read L2, have registers for 4 rows.
#pragma once
#include "kernels/common/warp_release.cuh"
#include "kernels/latent_attention/f8_keys.cuh"
#include "kernels/latent_attention/gather.cuh"

namespace slimexx::kernels::latent_attention {

inline constexpr int kF8Takers = 8 + kF8Warps - 1;                   // warps that take each item
inline constexpr uint32_t kF8Loading = kF8Warps * kArrivalsPerWarp;  // arrivals at a full barrier

// What the items of a launch are.
enum class Items {
  kWhole,   // find_item<true>; thread blocks take them in turn as they become free
  kSplit,   // find_item<false>
  kListed,  // find_listed_item
};

// Run by warp 0: finds the thread block's next item that has keys, and passes it on.
template <Items kItems, int kRows>
struct ItemFinder {
  const attention::Problem& problem;
  const F8Keys& keys;
  WorkCursor cursor;
  int next = static_cast<int>(blockIdx.x);  // kWhole: in lane 0 only

  __device__ __forceinline__ bool find(int index, Item& item) {
    if constexpr (kItems == Items::kListed) {
      ListedItem listed;
      const bool found = find_listed_item<kRows>(problem, keys.list_width, cursor, index, listed);
      item = listed.item;
      return found;
    } else {
      return find_item<kItems == Items::kWhole, kRows>(problem, cursor, index, item);
    }
  }
  __device__ __forceinline__ Item put_next(ItemQueue& items) {
    Item item;
    bool found;
    do {
      const int index = __shfl_sync(0xffffffffu, next, 0);
      found = find(index, item);
      next = index + static_cast<int>(gridDim.x);
    } while (found && item.first_block >= item.last_block);
    if (!found) item.rows = 0;
    items.put(item);
    if (kItems == Items::kWhole && found && threadIdx.x == 0) {
      next = static_cast<int>(gridDim.x + atomicAdd(problem.next_tile, 1u));
    }
    return item;
  }
};

// A block as a lane sees it.
struct F8Block {
  int row = 0;         // see F8Rows; any row for a key that does not exist, as consumers clear it
  int query_row = -1;  // first block of an item: its item's first query row
  bool exists = false;
  bool is_written = false;  // readable before the previous kernels end
};

template <Items kItems, class Shared>
struct BlockFinder {
  const attention::Problem& problem;
  const F8Keys& keys;
  ItemQueue items;
  ItemFinder<kItems, Shared::kQueryRows> finder;
  bool finds;  // warp 0
  Item item = {};
  int block = 0, written = 0;
  int position = -1, page = 0;  // of this lane's row

  // The steps of finding the next block. Each uses what the step before it loaded.
  __device__ __forceinline__ F8Block advance() {
    F8Block found;
    if (++block >= item.last_block) {
      item = finds ? finder.put_next(items) : items.take();
      block = item.first_block;
      written = attention::count_written_blocks(problem, item.context, kBlock);
      found.query_row = item.row;
    }
    found.exists = item.rows > 0;
    found.is_written = block < written;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int at = block * kBlock + warp * kWarpKeys + static_cast<int>(threadIdx.x % kWarpKeys);
    position = found.exists && at < item.keys ? at : -1;
    if (kItems == Items::kListed && position >= 0) {
      const int64_t token = item.row / problem.group;
      position = keys.selected[token * keys.list_width + position];
    }
    return found;
  }
  __device__ __forceinline__ void read_page() {
    if (position >= 0) page = latent_attention::read_page(problem, item.sequence, position);
  }
  __device__ __forceinline__ int find_row() const {
    return position >= 0 ? row_in_page(problem, page, position) : 0;
  }
};

template <class Shared>
__device__ __forceinline__ void signal_block(Shared shared, uint32_t n) {
  fence_shared_for_async();
  __syncwarp();
  if constexpr (kArrivalsPerWarp > 1) {
    for (int box = 0; box < kBoxes; ++box) arrive(shared.full(n, box));
  } else if (threadIdx.x % 32 < kBoxes) {
    arrive(shared.full(n, static_cast<int>(threadIdx.x % 32)));
  }
}

// Run by warpgroup 0. `awaited`: the kernel has waited for the previous kernels. kGroups groups are
// in flight per warp while it stores the kGroups groups before them.
template <Items kItems, int kGroups, class Shared>
__device__ __forceinline__ void load_f8_items(const attention::Problem& problem, const F8Keys& keys,
                                              const CUtensorMap& query_map,
                                              const CUtensorMap& query_rotary_map, Shared shared,
                                              bool awaited) {
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  QueryLoader<Shared> queries{query_map, query_rotary_map, shared};
  BlockFinder<kItems, Shared> blocks{problem, keys, shared.items(), {problem, keys}, warp == 0};
  const auto await = [&] {
    if (!awaited) await_previous_grids();
    awaited = true;
  };
  F8Block now, next;  // stored in this round, and loaded in it
  F8Rows<kGroups> in_flight;
  bool goes_on = true;
  for (uint32_t n = 0; goes_on || now.exists;) {
    F8Block after;
    if (goes_on) after = blocks.advance();
    goes_on = after.exists;
    bool is_ready = false;  // the next block may be loaded before this one is stored
    if (now.exists) {
      if (warp == 0 && now.query_row >= 0) {
        await();  // they wrote the queries
        Item item;
        item.row = now.query_row;
        queries.load(item);
      }
      is_ready = awaited || next.is_written;
      const uint32_t to = shared.stage(n) + warp * (kWarpKeys * 128);
#pragma unroll 1
      for (int g = 0; g < kKeyGroups; g += kGroups) {
        const F8Rows<kGroups> held = in_flight.turned();  // waits for the loads
        if (g == 0) {
          for (int part = 0; part < 3; ++part) wait(shared.empty(n, part), stage_parity(n) ^ 1);
        } else {
          __syncwarp();
        }
        if (g + kGroups < kKeyGroups) {
          in_flight.load(keys, g + kGroups, now.row);
        } else {
          if (is_ready) in_flight.load(keys, 0, next.row);
          blocks.read_page();
        }
        held.store(g, to);
      }
      signal_block(shared, n++);
    } else {
      blocks.read_page();
    }
    if (next.exists && !is_ready) {
      if (!next.is_written) await();
      in_flight.load(keys, 0, next.row);
    }
    after.row = blocks.find_row();
    now = next;
    next = after;
  }
}

}  // namespace slimexx::kernels::latent_attention
