// Dequantises blocks of FP8 keys and values in the rings of key_stream.cuh: reads the bytes that
// TMA has loaded, and fills the same stage with the swizzled bf16 block that key_walk.cuh reads.
//
// Cost of a block of 128 keys, head dim 128: about 4 instructions for each of its 32,768 elements,
// or 1,400 issue slots of each converting warp. Reads of 32 KB and writes of 64 KB take 770 clocks
// of shared memory.
#pragma once
#include <cstdint>

#include "kernels/attention/key_stream.cuh"
#include "kernels/common/f8_pairs.cuh"
#include "kernels/common/warp_release.cuh"

namespace slimexx::kernels::attention {

inline constexpr int kConvertingWarps = 3;
inline constexpr uint32_t kConverterArrivals = kConvertingWarps * kArrivalsPerWarp;

// Run by each of the converting warps.
template <int kHeadDim, int kStages>
struct KeyConverter {
  using Rings = KeyRings<kHeadDim, kStages>;
  using Bytes = ByteStages<kHeadDim, kStages>;
  static constexpr int kSteps = kHeadDim / 64;  // of two loads of 16 bytes per lane, for a piece
  Rings rings;
  Bytes bytes;
  int warp;  // 0 .. kConvertingWarps - 1
  RingCursor<kStages> key_cursor, value_cursor;

  // The row of a piece and the 16 columns of a load of the lane. Eight neighbouring lanes read
  // 128 bytes of all banks. They write chunks of an even and an odd row, which the swizzle puts in
  // different banks.
  struct Place {
    int row, half, chunk;  // chunk: of 16 columns, within the half
  };
  __device__ __forceinline__ static Place find_place(int load) {
    const int lane = threadIdx.x % 32;
    if constexpr (kHeadDim == 64) return {8 * load + lane / 4, 0, lane % 4};
    const int odd = lane / 4 % 2;
    return {4 * load + lane / 16 * 2 + odd, lane / 8 % 2 ^ odd, lane % 4};
  }

  // All bytes of the step's rows are read before their first bf16 is written: they overlap.
  __device__ __forceinline__ void convert_rows(uint32_t buffer, uint32_t scales, int piece,
                                               int step) const {
    uint32_t quads[2][4], scale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto [row, half, chunk] = find_place(2 * step + i);
      const uint32_t from =
          buffer + Bytes::piece_at(piece) + row * kHeadDim + half * 64 + chunk * 16;
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(quads[i][0]), "=r"(quads[i][1]), "=r"(quads[i][2]), "=r"(quads[i][3])
                   : "r"(from)
                   : "memory");
      uint16_t one;
      asm volatile("ld.shared.b16 %0, [%1];"
                   : "=h"(one)
                   : "r"(scales + (piece * kPieceRows + row) * 2)
                   : "memory");
      scale[i] = repeat_scale(one);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto [row, half, chunk] = find_place(2 * step + i);
      const uint32_t to = buffer + half * Rings::kHalfBytes + (piece * kPieceRows + row) * 128 +
                          ((2 * chunk ^ row % 8) << 4);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint2 low = dequantise_quad(quads[i][2 * j], scale[i]);
        const uint2 high = dequantise_quad(quads[i][2 * j + 1], scale[i]);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to ^ j * 16), "r"(low.x),
                     "r"(low.y), "r"(high.x), "r"(high.y)
                     : "memory");
      }
    }
  }

  // Pieces past the sequence's keys were not loaded.
  __device__ __forceinline__ void convert_block(const KeyRange& range, int block, uint32_t buffer,
                                                uint32_t scales, uint32_t full) const {
    const int pieces = min(divide_up(range.keys - block * kBlock, kPieceRows), kBlock / kPieceRows);
    for (int piece = warp; piece < pieces; piece += kConvertingWarps) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) convert_rows(buffer, scales, piece, step);
    }
    fence_shared_for_async();
    release(full);
  }
  __device__ __forceinline__ void convert_keys(const KeyRange& range, int block) {
    const uint32_t stage = key_cursor.stage;
    wait(bytes.keys_loaded(stage), key_cursor.parity);
    convert_block(range, block, rings.keys(stage), bytes.key_scales(stage), rings.keys_full(stage));
    key_cursor.advance();
  }
  __device__ __forceinline__ void convert_values(const KeyRange& range, int block) {
    const uint32_t stage = value_cursor.stage;
    wait(bytes.values_loaded(stage), value_cursor.parity);
    convert_block(range, block, rings.values(stage), bytes.value_scales(stage),
                  rings.values_full(stage));
    value_cursor.advance();
  }

  // In the order in which KeyLoader loads.
  __device__ __forceinline__ void convert(const KeyRange& range) {
    convert_keys(range, range.first_block);
    for (int block = range.first_block; block < range.last_block; ++block) {
      if (block + 1 < range.last_block) convert_keys(range, block + 1);
      convert_values(range, block);
    }
  }
};

}  // namespace slimexx::kernels::attention
