// The producer for sparse attention, where every query has a list of its keys. A warpgroup gathers
// the listed rows into the layout that TMA would give a block of neighbouring rows. A tile's rows
// are heads of one token. The tile's keys are numbered by their index in the list, so that the
// consumer walks them like all keys of a shorter sequence, and the bits are the same.
//
// A warp copies 16 rows of a block with eight lanes per row: one instruction copies 128 bytes of
// each of four rows.
#pragma once
#include "kernels/common/async_copy.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/latent_attention/load.cuh"

namespace slimexx::kernels::latent_attention {

inline constexpr int kGatherThreads = 128;

// A work item: heads of one token. The number of keys in the token's list follows from its
// position.
struct ListedItem {
  Item item;
  int token = 0;        // counted over the batch
  int first_token = 0;  // first token of its sequence
};

// Called by all lanes of a warp. Finds item `index` of the launch; returns false past the last
// item.
template <int kRows>
__device__ __forceinline__ bool find_listed_item(const attention::Problem& problem, int list_width,
                                                 WorkCursor& cursor, int index,
                                                 ListedItem& listed) {
  const int tiles = divide_up(problem.group, kRows);
  int within = 0;
  Item& item = listed.item;
  item.sequence =
      cursor.find(problem, index, within, [&](const Sequence& s) { return s.queries * tiles; });
  if (item.sequence < 0) return false;
  const Sequence s = read_sequence(problem, item.sequence);
  const int query = within / tiles;
  listed.first_token = s.first_token;
  listed.token = s.first_token + query;
  item.row_in_sequence = within % tiles * kRows;
  item.rows = min(kRows, problem.group - item.row_in_sequence);
  item.row = listed.token * problem.group + item.row_in_sequence;
  item.keys = min(s.context + query + 1, list_width);
  item.context = item.keys - 1;  // so that the rows see exactly the keys in the list
  item.first_block = 0;
  item.last_block = divide_up(item.keys, kBlock);
  return true;
}

template <class Shared>
struct Gatherer {
  const Problem& problem;
  const KeyLists& lists;
  Shared shared;
  uint32_t block_count = 0;  // blocks so far, over all items

  // Row of the block that this lane looks up: two lanes for each of the warp's 16 rows.
  __device__ __forceinline__ int own_row() const {
    return static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x % 16);
  }

  // Position in the sequence of the key that this lane copies for a block; -1 past the end of the
  // list.
  __device__ __forceinline__ int read_position(const ListedItem& listed, int block) const {
    const int at = block * kBlock + own_row();
    if (at >= listed.item.keys) return -1;
    return lists.selected[static_cast<int64_t>(listed.token) * lists.width + at];
  }
  // Page number of a position, for find_row().
  __device__ __forceinline__ int read_page(const ListedItem& listed, int position) const {
    const attention::Problem& p = problem.attention;
    if (p.page_table == nullptr || position < 0) return 0;
    return p.page_table[listed.item.sequence * p.page_table_stride + (position >> p.page_shift)];
  }
  __device__ __forceinline__ int find_row(const ListedItem& listed, int position, int page) const {
    const attention::Problem& p = problem.attention;
    if (position < 0) return -1;
    if (p.page_table == nullptr) return listed.first_token + position;
    return (page << p.page_shift) + (position & ((1 << p.page_shift) - 1));
  }

  // Copies this lane's chunks of a box. Columns past value_dim or rotary_dim become zeros.
  __device__ __forceinline__ void copy_box(uint32_t to, int box, const uint16_t* const (&rows)[4],
                                           const uint32_t (&bytes)[4]) const {
    const int column = static_cast<int>(threadIdx.x % 8) * 8;
    const bool rotary = box == kValueBoxes;
    const bool exists =
        rotary ? column < lists.rotary_dim : box * kBoxColumns + column < problem.value_dim;
    const int from = column + (rotary ? problem.value_dim : box * kBoxColumns);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // For rows four apart the swizzle differs in bit 2 of the chunk, which is address bit 6.
      copy_chunk((to ^ (i % 2 * 64)) + i * 4 * 128, rows[i] + from, exists ? bytes[i] : 0);
    }
  }

  // `row`: row in the tensor for this lane's key; -1: no key.
  __device__ __forceinline__ void load_block(int row) {
    const uint32_t n = block_count++, parity = stage_parity(n) ^ 1;
    const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const uint16_t* rows[4];
    uint32_t bytes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = __shfl_sync(0xffffffffu, row, lane / 8 + 4 * i);
      rows[i] = lists.keys + max(own, 0) * lists.key_stride;
      bytes[i] = own >= 0 ? 16 : 0;
    }
    const uint32_t to = shared.stage(n) + warp * 16 * 128 + swizzled_offset(lane / 8, lane % 8);
    for (int part = 0; part < 3; ++part) {
      wait(shared.empty(n, part), parity);
      const int first = part * (kValueBoxes / 2), end = min(first + kValueBoxes / 2, kBoxes);
#pragma unroll 1
      for (int box = first; box < end; ++box) {
        copy_box(to + box * kBoxBytes, box, rows, bytes);
        if ((box + 1) % kGatheredBoxes == 0 || box == kValueBoxes) {
          arrive_after_copies(shared.full(n, box / kGatheredBoxes * kGatheredBoxes));
        }
      }
    }
  }

  // Positions are read two blocks ahead, page numbers one block ahead.
  __device__ __forceinline__ void load_keys(const ListedItem& listed) {
    int position = read_position(listed, 0), page = read_page(listed, position);
    int next = read_position(listed, 1);
    for (int block = 0; block < listed.item.last_block; ++block) {
      const int row = find_row(listed, position, page);
      position = next;
      page = read_page(listed, position);
      next = read_position(listed, block + 2);
      load_block(row);
      // First use of these loads: they are in flight while the block's copies are issued.
      asm volatile("" : "+r"(page), "+r"(next));
    }
  }
};

// Run by warpgroup 0: all its warps load keys; warp 0 also passes on items and loads queries.
template <class Shared>
__device__ __forceinline__ void load_listed_items(const Problem& problem, const KeyLists& lists,
                                                  const CUtensorMap& query_map,
                                                  const CUtensorMap& query_rotary_map,
                                                  Shared shared) {
  Gatherer<Shared> gatherer{problem, lists, shared};
  QueryLoader<Shared> queries{query_map, query_rotary_map, shared};
  ItemQueue items = shared.items();
  const bool first_warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) == 0;
  WorkCursor cursor;
  ListedItem listed;
  for (int index = blockIdx.x;
       find_listed_item<Shared::kQueryRows>(problem.attention, lists.width, cursor, index, listed);
       index += gridDim.x) {
    if (first_warp) {
      items.put(listed.item);
      queries.load(listed.item);
    }
    gatherer.load_keys(listed);
  }
  listed.item.rows = 0;
  if (first_warp) items.put(listed.item);
}

}  // namespace slimexx::kernels::latent_attention
