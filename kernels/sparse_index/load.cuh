// The producers of the score kernel: one warp loads keys, another finds items and loads their
// queries and weights.
#pragma once
#include "kernels/common/tma.cuh"
#include "kernels/sparse_index/shared.cuh"

namespace slimexx::kernels::sparse_index {

// The row in the tensor of keys where piece `piece` of a sequence starts; -1 if no query of the
// item sees the piece, because its page may not exist.
__device__ __forceinline__ int find_key_row(const Problem& p, const Item& item, int piece) {
  const int position = piece * p.box_rows;
  if (position >= item.keys()) return -1;
  if (p.page_table == nullptr) return item.first_token + position;
  const int32_t page =
      p.page_table[item.sequence * p.page_table_stride + (position >> p.page_shift)];
  return (page << p.page_shift) + (position & ((1 << p.page_shift) - 1));
}

// Run by one warp. A block is loaded in pieces of box_rows keys (a page, or all 64) and boxes of 64
// elements. The warp looks up the rows of 32 pieces at a time, one per lane. In decode the keys are
// read once, so they are loaded evict-first and leave L2 to the scores.
template <class S>
__device__ __forceinline__ void load_keys(const Problem& p, const CUtensorMap* map,
                                          Shared<S> shared) {
  const int lane = threadIdx.x % 32, pieces = kBlock / p.box_rows;
  const int own_piece = lane % pieces, own_box = lane / pieces;
  Share<S::kQueries> share(p);
  uint32_t n = 0;
  for (Item item; share.take(item);) {
    const int first_piece = item.first_block * pieces;
    int rows = -1;
    for (int block = item.first_block; block < item.last_block; ++block, ++n) {
      const int piece = block * pieces - first_piece;
      if (piece % 32 == 0) rows = find_key_row(p, item, first_piece + piece + lane);
      const int row = __shfl_sync(0xffffffffu, rows, piece % 32 + own_piece);
      const uint32_t seen = __ballot_sync(0xffffffffu, row >= 0 && lane < pieces);
      wait(shared.keys_empty(n), shared.block_parity(n) ^ 1);
      if (lane == 0) {
        arrive_expect_bytes(shared.keys_full(n),
                            static_cast<uint32_t>(__popc(seen) * p.box_rows * 128 * S::kBoxes));
      }
      __syncwarp();
      if (row >= 0 && own_box < S::kBoxes) {
        load_box_hinted(
            shared.keys(n) + own_box * Shared<S>::kKeyBoxBytes + own_piece * p.box_rows * 128, map,
            shared.keys_full(n), own_box * kBoxColumns, row,
            S::kQueries == 1 ? kEvictFirst : kEvictNormal);
      }
    }
  }
}

// Run by one warp: passes on items with their queries and scaled weights; an item without rows
// marks the end.
template <class S>
__device__ __forceinline__ void load_queries(const Problem& p, const CUtensorMap* map,
                                             Shared<S> shared) {
  const int lane = threadIdx.x % 32;
  Share<S::kQueries> share(p);
  uint32_t n = 0;
  const auto put = [&](const Item& item) {
    if (lane == 0) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared.item(n)), "r"(item.rows),
                   "r"(item.row), "r"(item.position), "r"(item.first_block)
                   : "memory");
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared.item(n) + 16), "r"(item.last_block)
                   : "memory");
    }
    release(shared.queries_full(n));
  };
  Item item;
  while (share.take(item)) {
    if (item.first_block >= item.last_block) continue;
    wait(shared.queries_empty(n), shared.tile_parity(n) ^ 1);
    if (lane == 0) arrive_expect_bytes(shared.queries_full(n), Shared<S>::kQueryBytes);
    __syncwarp();
    if (lane < S::kBoxes) {
      load_box(shared.queries(n) + lane * Shared<S>::kQueryBoxBytes, map, shared.queries_full(n),
               lane * kBoxColumns, 0, item.row);
    }
#pragma unroll
    for (int column = lane; column < S::kColumns; column += 32) {
      const int query = column / S::kHeads, head = column % S::kHeads;
      float weight = 0.0f;
      if (query < item.rows && head < p.heads) {
        weight =
            __fmul_rn(p.scale, p.weights[static_cast<int64_t>(item.row + query) * p.heads + head]);
      }
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared.weights(n) + column * 4), "f"(weight)
                   : "memory");
    }
    put(item);
    ++n;
  }
  wait(shared.queries_empty(n), shared.tile_parity(n) ^ 1);
  if (lane == 0) arrive(shared.queries_full(n));
  item.rows = 0;
  put(item);
}

}  // namespace slimexx::kernels::sparse_index
