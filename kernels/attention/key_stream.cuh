// Producer for keys and values: one warp loads blocks of kBlock rows into two rings in shared
// memory. The source is packed or paged; the layout in shared memory is the same for both. FP8: the
// bytes of a block come to the buffer of the bf16 block, and other warps dequantise them in place
// (key_converter.cuh).
#pragma once
#include <cstdint>

#include "kernels/attention/byte_pieces.cuh"
#include "kernels/attention/problem.cuh"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"

namespace slimexx::kernels::attention {

// Blocks [first_block, last_block) of a sequence's keys for one kv head.
struct KeyRange {
  int sequence, head, first_token, keys, first_block, last_block;
  int written_blocks = 0;  // blocks below this number may be read before the previous kernels end
};

template <int kHeadDim, int kStages>
struct KeyRings {
  static constexpr int kHalves = kHeadDim / kBoxColumns;
  static constexpr uint32_t kHalfBytes = kBlock * 128;
  static constexpr uint32_t kBlockBytes = kHalves * kHalfBytes;
  static constexpr uint32_t kBytes = 2 * kStages * kBlockBytes;
  static constexpr uint32_t kBarrierBytes = 4 * kStages * 8;

  uint32_t buffers, barriers;  // shared addresses

  __device__ __forceinline__ uint32_t keys(uint32_t stage) const {
    return buffers + stage * kBlockBytes;
  }
  __device__ __forceinline__ uint32_t values(uint32_t stage) const {
    return buffers + (kStages + stage) * kBlockBytes;
  }
  __device__ __forceinline__ uint32_t keys_full(uint32_t stage) const {
    return barriers + stage * 8;
  }
  __device__ __forceinline__ uint32_t keys_empty(uint32_t stage) const {
    return barriers + (kStages + stage) * 8;
  }
  __device__ __forceinline__ uint32_t values_full(uint32_t stage) const {
    return barriers + (2 * kStages + stage) * 8;
  }
  __device__ __forceinline__ uint32_t values_empty(uint32_t stage) const {
    return barriers + (3 * kStages + stage) * 8;
  }
  // Called by one thread. Each of `consumer_warps` warps arrives once to release a buffer.
  // `producer_arrivals`: arrivals that fill it.
  __device__ __forceinline__ void init(uint32_t consumer_warps, uint32_t producer_arrivals) const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      init_mbarrier(keys_full(stage), producer_arrivals);
      init_mbarrier(values_full(stage), producer_arrivals);
      init_mbarrier(keys_empty(stage), consumer_warps);
      init_mbarrier(values_empty(stage), consumer_warps);
    }
  }
};

// FP8: barriers of loaded bytes, and scales, for each stage of KeyRings.
template <int kHeadDim, int kStages>
struct ByteStages {
  static constexpr uint32_t kBarrierBytes = 2 * kStages * 8;
  static constexpr uint32_t kBytes = kBarrierBytes + 2 * kStages * kBlockScaleBytes;

  uint32_t address;  // shared, a multiple of 16

  __device__ __forceinline__ uint32_t keys_loaded(uint32_t stage) const {
    return address + stage * 8;
  }
  __device__ __forceinline__ uint32_t values_loaded(uint32_t stage) const {
    return address + (kStages + stage) * 8;
  }
  __device__ __forceinline__ uint32_t key_scales(uint32_t stage) const {
    return address + kBarrierBytes + stage * kBlockScaleBytes;
  }
  __device__ __forceinline__ uint32_t value_scales(uint32_t stage) const {
    return key_scales(kStages + stage);
  }
  // Offset of a piece's bytes in the buffer of a block. They lie at the end of the place of the
  // dequantised piece (of its second half, if it has two).
  __device__ __forceinline__ static uint32_t piece_at(int piece) {
    constexpr uint32_t kHalfPiece = kPieceRows * 128;
    return (kHeadDim / kBoxColumns - 1) * KeyRings<kHeadDim, kStages>::kHalfBytes +
           (piece + 1) * kHalfPiece - kPieceRows * kHeadDim;
  }
  // Called by one thread.
  __device__ __forceinline__ void init() const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      init_mbarrier(keys_loaded(stage), 1);
      init_mbarrier(values_loaded(stage), 1);
    }
  }
};

// Run by the loading warp. Lane i loads column half i % kHalves of box i / kHalves of every block;
// of FP8 pages, piece i.
template <int kHeadDim, int kStages, bool kFp8>
struct KeyLoader {
  using Rings = KeyRings<kHeadDim, kStages>;
  using Bytes = ByteStages<kHeadDim, kStages>;
  const Problem& problem;
  const CUtensorMap& key_map;
  const CUtensorMap& value_map;
  Rings rings;
  Bytes bytes;
  RingCursor<kStages> key_cursor, value_cursor;
  int value_row = -1;  // find_row() of the block whose values are loaded next

  __device__ __forceinline__ int box_offset() const {
    const int lane = threadIdx.x % 32;
    return kFp8 ? lane * kPieceRows : lane / Rings::kHalves * problem.box_rows;
  }

  // Tensor row where this lane's box of a block starts, or -1 if the lane has no box. A box that
  // lies entirely past the sequence's keys is not read: its page may not exist.
  __device__ __forceinline__ int find_row(const KeyRange& range, int block) const {
    const int offset = box_offset();
    const int position = block * kBlock + offset;
    if (block >= range.last_block || offset >= kBlock || position >= range.keys) return -1;
    if (problem.page_table == nullptr) return range.first_token + position;
    const int32_t page = problem.page_table[range.sequence * problem.page_table_stride +
                                            (position >> problem.page_shift)];
    return (page << problem.page_shift) + (position & ((1 << problem.page_shift) - 1));
  }

  __device__ __forceinline__ void load_block(const CUtensorMap& map, uint32_t buffer, uint32_t full,
                                             int head, int row) const {
    const int lane = threadIdx.x % 32;
    const uint32_t copies = __popc(__ballot_sync(0xffffffffu, row >= 0));
    if (lane == 0) arrive_expect_bytes(full, copies * problem.box_rows * 128);
    __syncwarp();
    const int half = lane % Rings::kHalves;
    if (row >= 0) {
      load_box(buffer + half * Rings::kHalfBytes + box_offset() * 128, &map, full,
               half * kBoxColumns, head, row);
    }
  }

  __device__ __forceinline__ void load_keys(const KeyRange& range, int row) {
    const uint32_t stage = key_cursor.stage, buffer = rings.keys(stage);
    wait(rings.keys_empty(stage), key_cursor.parity ^ 1);
    if constexpr (kFp8) {
      load_byte_pieces<kHeadDim>(problem, key_map, problem.k_scales, range.head, row,
                                 buffer + Bytes::piece_at(threadIdx.x % 32),
                                 bytes.key_scales(stage), bytes.keys_loaded(stage));
    } else {
      load_block(key_map, buffer, rings.keys_full(stage), range.head, row);
    }
    key_cursor.advance();
  }

  __device__ __forceinline__ void load_values(const KeyRange& range, int row) {
    const uint32_t stage = value_cursor.stage, buffer = rings.values(stage);
    wait(rings.values_empty(stage), value_cursor.parity ^ 1);
    if constexpr (kFp8) {
      load_byte_pieces<kHeadDim>(problem, value_map, problem.v_scales, range.head, row,
                                 buffer + Bytes::piece_at(threadIdx.x % 32),
                                 bytes.value_scales(stage), bytes.values_loaded(stage));
    } else {
      load_block(value_map, buffer, rings.values_full(stage), range.head, row);
    }
    value_cursor.advance();
  }

  // load_first and then load_rest load K0, K1, V0, K2, V1, ..., the order of use. The page table is
  // read one block ahead.
  __device__ __forceinline__ void load_first(const KeyRange& range) {
    value_row = find_row(range, range.first_block);
    load_keys(range, value_row);
  }
  __device__ __forceinline__ void load_rest(const KeyRange& range) {
    load_rest(range, [] {});
  }
  // `before_last` runs just before the warp waits for a free buffer for the last block's values.
  template <class BeforeLast>
  __device__ __forceinline__ void load_rest(const KeyRange& range, const BeforeLast& before_last) {
    int next_row = find_row(range, range.first_block + 1);
    for (int block = range.first_block; block < range.last_block; ++block) {
      const int key_row = next_row;
      next_row = find_row(range, block + 2);
      if (block + 1 < range.last_block) {
        load_keys(range, key_row);
      } else {
        before_last();
      }
      load_values(range, value_row);
      value_row = key_row;
    }
  }
  __device__ __forceinline__ void load(const KeyRange& range) {
    load_first(range);
    load_rest(range);
  }
};

}  // namespace slimexx::kernels::attention
