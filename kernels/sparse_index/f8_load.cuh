// The producer of FP8 keys: three warps take turns at the thread block's key blocks. A warp loads
// the bytes of its next block into registers while it dequantises a block and stores it in the
// layout that TMA would give bf16 keys. So the consumers are the same.
//
// Cost of a block of 128 elements: a warp needs about 1100 instructions, three warps 370 clocks per
// block; its 8 KB take 440 clocks at 4.27 TB/s over 132 SMs. 24 KB are in flight.
#pragma once
#include "kernels/common/f8_chunk.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/sparse_index/load.cuh"

namespace slimexx::kernels::sparse_index {

inline constexpr int kF8Warps = 3;
static_assert(kMostIndexHeadDim == 8 * 16, "eight lanes load a key");

// A key block in a warp's registers: in 16 pieces of four keys, eight lanes per key.
struct F8Block {
  static constexpr int kPieces = kBlock / 4;
  uint4 values[kPieces] = {};
  uint16_t scales[2] = {};  // bf16, of keys lane and lane + 32

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  // Keys that no query of the item sees keep what was loaded before; their scores are not stored.
  // Columns that do not exist stay zeros.
  __device__ __forceinline__ void load(const Problem& p, const F8Keys& keys, const Item& item,
                                       int block) {
    const int first = block * kBlock, of_piece = first + lane() % kPieces * 4;
    int row = 0;  // of the first key of piece lane % 16
    if (of_piece < item.keys()) {
      const int32_t page =
          p.page_table[item.sequence * p.page_table_stride + (of_piece >> p.page_shift)];
      row = (page << p.page_shift) + (of_piece & ((1 << p.page_shift) - 1));
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int64_t own = __shfl_sync(0xffffffffu, row, i) + lane() / 8;
      const bool exists =
          first + 4 * i + lane() / 8 < item.keys() && lane() % 8 * 16 < keys.head_dim;
      load_if(values[i], exists, keys.bytes + own * keys.stride + lane() % 8 * 16);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = lane() + 32 * i;
      const int64_t own = __shfl_sync(0xffffffffu, row, key / 4) + key % 4;
      load_if(scales[i], first + key < item.keys(), keys.scales + own);
    }
  }

  // Waits for the loads. Lanes of the second box store their two chunks in opposite order, so that
  // eight lanes use all banks. The next loads must not be issued before, because the hardware
  // counts all loads in flight together.
  __device__ __forceinline__ F8Block turned() const {
    F8Block result = *this;
#pragma unroll
    for (uint4& x : result.values) x = turn_halves(x, lane() / 4 % 2);
    asm volatile("" : "+h"(result.scales[0]), "+h"(result.scales[1]));
    return result;
  }

  // `to`: the stage. Lanes of a box that does not exist store nothing.
  template <class S>
  __device__ __forceinline__ void store(uint32_t to) const {
    const int box = lane() / 4 % 2;
    to += box * Shared<S>::kKeyBoxBytes;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t bits = __shfl_sync(0xffffffffu, scales[i / 8], i % 8 * 4 + lane() / 8);
      const uint32_t scale = bits | bits << 16;
      const uint32_t at = to + swizzled_offset(4 * i + lane() / 8, lane() % 4 * 2 + box);
      const uint4 first = dequantise_chunk(values[i].x, values[i].y, scale);
      const uint4 second = dequantise_chunk(values[i].z, values[i].w, scale);
      if (box >= S::kBoxes) continue;
      store_chunk(at, first);
      store_chunk(at ^ 16, second);
    }
  }
};

// The key blocks of a thread block's share, in order.
template <class S>
struct BlockCursor {
  Share<S::kQueries> share;
  Item item;
  int block = 0;
  uint32_t n = 0;  // of the current block
  bool begun = false;

  __device__ __forceinline__ explicit BlockCursor(const Problem& p) : share(p) {}
  __device__ __forceinline__ bool advance() {
    if (begun) ++n, ++block;
    begun = true;
    while (block >= item.last_block) {
      if (!share.take(item)) return false;
      block = item.first_block;
    }
    return true;
  }
  __device__ __forceinline__ bool advance(int blocks) {
    for (int i = 0; i < blocks; ++i) {
      if (!advance()) return false;
    }
    return true;
  }
};

// Run by warp `index` of kF8Warps.
template <class S>
__device__ __forceinline__ void load_f8_keys(const Problem& p, const F8Keys& keys, Shared<S> shared,
                                             int index) {
  BlockCursor<S> cursor(p);
  bool exists = cursor.advance(index + 1);
  F8Block in_flight;
  if (exists) in_flight.load(p, keys, cursor.item, cursor.block);
  while (exists) {
    const uint32_t n = cursor.n;
    exists = cursor.advance(kF8Warps);
    const F8Block held = in_flight.turned();
    wait(shared.keys_empty(n), shared.block_parity(n) ^ 1);
    if (exists) in_flight.load(p, keys, cursor.item, cursor.block);
    held.store<S>(shared.keys(n));
    fence_shared_for_async();
    release(shared.keys_full(n));
  }
}

}  // namespace slimexx::kernels::sparse_index
