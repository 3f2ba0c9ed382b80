// The producer: finds work items and loads their queries and keys into shared memory.
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/latent_attention/launch.cuh"

namespace slimexx::kernels::latent_attention {

struct Maps {
  const CUtensorMap& query;
  const CUtensorMap& query_rotary;
  const CUtensorMap& key;
  const CUtensorMap& key_rotary;
};

// Run by one warp.
template <class Shared>
struct QueryLoader {
  const CUtensorMap& map;
  const CUtensorMap& rotary_map;
  Shared shared;
  uint32_t item_count = 0;

  __device__ __forceinline__ void load(const Item& item) {
    wait(shared.queries_empty(), item_count % 2 ^ 1);
    const int lane = threadIdx.x % 32;
    if (lane == 0) arrive_expect_bytes(shared.queries_full(), Shared::kQueryBytes);
    __syncwarp();
    if (lane < kBoxes) {
      const bool rotary = lane == kValueBoxes;
      load_box_hinted(shared.queries() + lane * Shared::kQueryBoxBytes, rotary ? &rotary_map : &map,
                      shared.queries_full(), rotary ? 0 : lane * kBoxColumns, item.row,
                      kEvictFirst);
    }
    ++item_count;
  }
};

template <class Shared>
struct Loader {
  const attention::Problem& problem;
  Maps maps;
  Shared shared;
  int first_part = 0, last_part = 3;  // parts of each block that this warp loads
  uint32_t block_count = 0;           // blocks so far, over all items

  // A block is loaded in pieces of problem.box_rows keys (a page, or all 64): lane i loads every
  // (32 / pieces)-th box of piece i % pieces.
  __device__ __forceinline__ int pieces() const { return kBlock / problem.box_rows; }
  __device__ __forceinline__ int own_offset() const {
    return static_cast<int>(threadIdx.x % 32) % pieces() * problem.box_rows;
  }

  // Row in the tensor of keys where this lane's piece of a block starts. -1 if the piece has none
  // of the sequence's keys: its page may not exist.
  __device__ __forceinline__ int find_row(const Item& item, int block) const {
    const int position = block * kBlock + own_offset();
    if (block >= item.last_block || position >= item.keys) return -1;
    if (problem.page_table == nullptr) {
      return (item.row - item.row_in_sequence) / problem.group + position;
    }
    const int32_t page = problem.page_table[item.sequence * problem.page_table_stride +
                                            (position >> problem.page_shift)];
    return (page << problem.page_shift) + (position & ((1 << problem.page_shift) - 1));
  }

  __device__ __forceinline__ void load_block(int row) {
    const uint32_t n = block_count++, parity = stage_parity(n) ^ 1;
    const int lane = threadIdx.x % 32, step = 32 / pieces();
    const int present = __popc(__ballot_sync(0xffffffffu, row >= 0) & ((1u << pieces()) - 1));
    for (int part = first_part; part < last_part; ++part) {
      wait(shared.empty(n, part), parity);
      const int first = part * (kValueBoxes / 2), end = min(first + kValueBoxes / 2, kBoxes);
      if (lane < end - first) {
        arrive_expect_bytes(shared.full(n, first + lane), present * problem.box_rows * 128);
      }
      __syncwarp();
      if (row < 0) continue;
      for (int box = first + lane / pieces(); box < end; box += step) {
        const bool rotary = box == kValueBoxes;
        load_box_hinted(shared.stage(n) + box * kBoxBytes + own_offset() * 128,
                        rotary ? &maps.key_rotary : &maps.key, shared.full(n, box),
                        rotary ? 0 : box * kBoxColumns, row, kEvictNormal);
      }
    }
  }

  // Loads an item's blocks. The page table is read one block ahead. Before the first block that the
  // previous kernels may still write, the warp waits for those kernels.
  __device__ __forceinline__ void load_keys(const Item& item) {
    const int written = attention::count_written_blocks(problem, item.context, kBlock);
    int row = find_row(item, item.first_block);
    for (int block = item.first_block; block < item.last_block; ++block) {
      const int next = find_row(item, block + 1);
      if (block >= written) await_previous_grids();
      load_block(row);
      row = next;
    }
  }
};

// Run by one warp: finds the items and loads their queries and keys.
template <bool kWhole, class Shared>
__device__ __forceinline__ void load_items(const attention::Problem& problem, const Maps& maps,
                                           Shared shared) {
  Loader<Shared> loader{problem, maps, shared};
  QueryLoader<Shared> queries{maps.query, maps.query_rotary, shared};
  ItemQueue items = shared.items();
  WorkCursor cursor;
  Item item;
  for (int index = blockIdx.x;
       find_item<kWhole, Shared::kQueryRows>(problem, cursor, index, item);) {
    int next = index + static_cast<int>(gridDim.x);
    if (item.first_block < item.last_block) {
      items.put(item);
      if (kWhole && threadIdx.x == 0) {
        next = static_cast<int>(gridDim.x + atomicAdd(problem.next_tile, 1u));
      }
      queries.load(item);
      loader.load_keys(item);
    }
    index = kWhole ? __shfl_sync(0xffffffffu, next, 0) : next;
  }
  item.rows = 0;
  items.put(item);
}

// load_items with three warps, so that loads start sooner. Warps 0 and 1 load keys: half of the
// value columns each, and warp 1 the rotary columns. Warp 2 passes on the items and loads queries.
template <class Shared>
__device__ __forceinline__ void load_items_together(const attention::Problem& problem,
                                                    const Maps& maps, Shared shared, int warp) {
  Loader<Shared> loader{problem, maps, shared, warp, warp == 0 ? 1 : 3};
  QueryLoader<Shared> queries{maps.query, maps.query_rotary, shared};
  ItemQueue items = shared.items();
  WorkCursor cursor;
  Item item;
  for (int index = blockIdx.x; find_item<false, Shared::kQueryRows>(problem, cursor, index, item);
       index += gridDim.x) {
    if (item.first_block >= item.last_block) continue;
    if (warp < 2) {
      loader.load_keys(item);
    } else {
      items.put(item);
      queries.load(item);
    }
  }
  item.rows = 0;
  if (warp == 2) items.put(item);
}

}  // namespace slimexx::kernels::latent_attention
