// Producer of few_rows.cu. A block of 128 keys is 8 pieces of 16 keys, for any page size. A piece
// holds columns 0 to 63 of its rows, then columns 64 to 127, in rows of 128 bytes with the 128-byte
// swizzle. So one TMA load brings a whole page of 16 tokens. Issuing a load costs a warp about 50
// clocks, so one warp loads keys and another values. FP8 pages: see byte_pieces.cuh.
#pragma once
#include <cstdint>

#include "kernels/attention/byte_pieces.cuh"
#include "kernels/attention/key_stream.cuh"
#include "kernels/attention/problem.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/warp_release.cuh"

namespace slimexx::kernels::attention {

// Map of a [rows, heads, head_dim] tensor; `pitch` is the distance between rows in elements. A box
// is kPieceRows rows of one head, one column half after the other; its coordinates are 0, head,
// row, 0. Returns false if the driver refuses the map.
inline bool encode_head_pieces(CUtensorMap* map, const void* base, int64_t rows, int64_t heads,
                               int64_t head_dim, int64_t pitch) {
  const int64_t halves = head_dim / kBoxColumns;
  return encode_bf16_tensor<4>(map, base, {kBoxColumns, heads, rows, halves},
                               {head_dim, pitch, kBoxColumns},
                               {kBoxColumns, 1, kPieceRows, halves});
}

__device__ __forceinline__ void load_piece(uint32_t destination, const CUtensorMap* map,
                                           uint32_t full, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %3}], [%2];" ::"r"(destination),
      "l"(map), "r"(full), "r"(0), "r"(head), "r"(row)
      : "memory");
}

// A ring of key blocks or of value blocks.
template <int kHeadDim, int kStages, bool kFp8>
struct BlockRing {
  static constexpr uint32_t kHalfBytes = kPieceRows * 128;  // of a bf16 piece
  static constexpr uint32_t kPieceBytes = kPieceRows * kHeadDim * (kFp8 ? 1 : 2);
  static constexpr uint32_t kBlockBytes = kBlock / kPieceRows * kPieceBytes;
  static constexpr uint32_t kBytes = kStages * kBlockBytes;
  static constexpr uint32_t kScaleBytes = kFp8 ? kStages * kBlockScaleBytes : 0;
  static constexpr uint32_t kBarrierBytes = 2 * kStages * 8;

  uint32_t buffers, barriers;  // shared addresses
  uint32_t block_scales;       // FP8: shared address of the scales
  RingCursor<kStages> cursor;

  __device__ __forceinline__ uint32_t buffer() const {
    return buffers + cursor.stage * kBlockBytes;
  }
  __device__ __forceinline__ uint32_t scales() const {
    return block_scales + cursor.stage * kBlockScaleBytes;
  }
  __device__ __forceinline__ uint32_t full() const { return barriers + cursor.stage * 8; }
  __device__ __forceinline__ uint32_t empty() const {
    return barriers + (kStages + cursor.stage) * 8;
  }
  // Called by one thread. A stage is empty again after all four computing warps have released it.
  __device__ __forceinline__ void init() const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      init_mbarrier(barriers + stage * 8, 1);
      init_mbarrier(barriers + (kStages + stage) * 8, kFp8 ? 4 * kArrivalsPerWarp : 4);
    }
  }

  // The next three functions are for the computing warps.
  __device__ __forceinline__ void await_block() const { wait(full(), cursor.parity); }
  __device__ __forceinline__ void release() {
    if constexpr (kFp8) {
      kernels::release(empty());
    } else if (threadIdx.x % 32 == 0) {
      arrive(empty());
    }
    cursor.advance();
  }
  // Zeroes the rows past the sequence's keys, which hold arbitrary bits, and their scales. Their
  // weights are 0, but 0 times an infinity or a NaN would be NaN. The caller must fence and
  // synchronise before the product.
  __device__ __forceinline__ void clear_from(int first_row) const {
    constexpr int kChunks = kPieceBytes / kPieceRows / 16;  // 16-byte chunks per row
    for (int i = first_row * kChunks + threadIdx.x; i < kBlock * kChunks; i += 128) {
      const int row = i / kChunks, chunk = i % kChunks;
      uint32_t address = buffer() + i * 16;
      if constexpr (!kFp8) {
        address = buffer() + row / kPieceRows * kPieceBytes + chunk / 8 * kHalfBytes +
                  row % kPieceRows * 128 + chunk % 8 * 16;
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
    }
    if (kFp8 && static_cast<int>(threadIdx.x) >= first_row) {
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(scales() + threadIdx.x * 2),
                   "h"(static_cast<uint16_t>(0))
                   : "memory");
    }
  }

  // The next two functions are for the loading warps. find_row: tensor row where this lane's piece
  // of a block starts, or -1 if the lane has no piece. A piece that lies entirely past the
  // sequence's keys is not read: its page may not exist.
  __device__ __forceinline__ static int find_row(const Problem& problem, const KeyRange& range,
                                                 int block) {
    const int lane = threadIdx.x % 32;
    const int position = block * kBlock + lane * kPieceRows;
    if (block >= range.last_block || lane >= kBlock / kPieceRows || position >= range.keys) {
      return -1;
    }
    if (problem.page_table == nullptr) return range.first_token + position;
    const int32_t page = problem.page_table[range.sequence * problem.page_table_stride +
                                            (position >> problem.page_shift)];
    return (page << problem.page_shift) + (position & ((1 << problem.page_shift) - 1));
  }
  // Loads all blocks of a range; `page_scales`: of FP8 pages. The page table is read one block
  // ahead. Before the first block that the previous kernels may still write, the warp waits for
  // those kernels.
  __device__ __forceinline__ void load(const Problem& problem, const CUtensorMap& map,
                                       const uint16_t* page_scales, const KeyRange& range) {
    const int lane = threadIdx.x % 32;
    int next_row = find_row(problem, range, range.first_block);
    for (int block = range.first_block; block < range.last_block; ++block) {
      const int row = next_row;
      next_row = find_row(problem, range, block + 1);
      const uint32_t copies = __popc(__ballot_sync(0xffffffffu, row >= 0));
      wait(empty(), cursor.parity ^ 1);
      if (block >= range.written_blocks) await_previous_grids();
      if constexpr (kFp8) {
        load_byte_pieces<kHeadDim>(problem, map, page_scales, range.head, row,
                                   buffer() + lane * kPieceBytes, scales(), full());
      } else {
        if (lane == 0) arrive_expect_bytes(full(), copies * kPieceBytes);
        __syncwarp();
        if (row >= 0) load_piece(buffer() + lane * kPieceBytes, &map, full(), range.head, row);
      }
      cursor.advance();
    }
  }
};

}  // namespace slimexx::kernels::attention
