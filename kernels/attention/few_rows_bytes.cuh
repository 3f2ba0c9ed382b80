// Operands of few_rows_walk.cuh from FP8 blocks: A operands in registers. A warp reads its part of
// a block by ldmatrix, as pairs of bytes, and dequantises it with 2.75 instructions per value.
//
// A lane gets four neighbouring bytes of a row where a matrix of bf16 would give it two values. Its
// even and odd bytes become two registers. So the rows of an operand, or the 16 columns that one
// product adds, are in another order:
//   keys: column position 2 c + j + 8 h of a group of 16 has column 4 c + 2 j + h, h and j = 0, 1.
//   The
//     queries have the same order (order_columns). The tensor cores add 16 products at once, so
//     their order changes no bit.
//   values: row g + 8 h of a warp's 16 rows has head dimension 2 g + h.
#pragma once
#include <cstdint>

#include "kernels/attention/byte_pieces.cuh"
#include "kernels/common/f8_pairs.cuh"
#include "kernels/common/ldmatrix.cuh"
#include "kernels/common/wgmma.cuh"

namespace slimexx::kernels::attention {

// Sorts the columns of a group of 16 that two neighbouring lanes hold, 8 columns each: the even
// lane gets the even columns, and the odd lane the odd ones.
__device__ __forceinline__ uint4 order_columns(const uint4& x) {
  const bool odd = threadIdx.x % 2 == 1;
  const uint32_t even_columns[2] = {__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.z, x.w, 0x5410)};
  const uint32_t odd_columns[2] = {__byte_perm(x.x, x.y, 0x7632), __byte_perm(x.z, x.w, 0x7632)};
  uint32_t own[2], other[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    own[i] = odd ? odd_columns[i] : even_columns[i];
    other[i] = __shfl_xor_sync(0xffffffffu, odd ? even_columns[i] : odd_columns[i], 1);
  }
  return odd ? make_uint4(other[0], other[1], own[0], own[1])
             : make_uint4(own[0], own[1], other[0], other[1]);
}

__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ uint32_t load_shared_half(uint32_t address) {
  uint16_t x;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
  return x;
}

// A warp's keys of one block: the keys of its two pieces. Half t of both pieces is the warp's part
// of score product t.
template <int kHeadDim>
struct KeyBytes {
  static constexpr uint32_t kPieceBytes = kPieceRows * kHeadDim;
  uint32_t raw[2][kHeadDim / 32][4];  // [t][pair of products]: two pieces of one product each
  uint32_t scales[2][2];              // [t][piece], repeated

  __device__ __forceinline__ void read(uint32_t buffer, uint32_t block_scales) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int matrix = lane / 8;
    const uint32_t rows = buffer + (2 * warp + matrix % 2) * kPieceBytes +
                          byte_offset<kHeadDim>(lane % 8, matrix / 2);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
      for (int i = 0; i < kHeadDim / 32; ++i) {
        load_matrices(raw[t][i], (rows ^ i * 32) + t * 8 * kHeadDim);
      }
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        const int key = (2 * warp + piece) * kPieceRows + 8 * t + lane / 4;
        scales[t][piece] = repeat_scale(load_shared_half(block_scales + key * 2));
      }
    }
  }
  // Operand of step k of score product t.
  __device__ __forceinline__ void dequantise(uint32_t (&a)[4], int t, int k) const {
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const uint32_t quad = raw[t][k / 2][k % 2 * 2 + piece];
      a[piece] = dequantise_even(quad, scales[t][piece]);
      a[2 + piece] = dequantise_odd(quad, scales[t][piece]);
    }
  }
};

// A warp's head dimensions of all values of one block.
template <int kHeadDim>
struct ValueBytes {
  static constexpr uint32_t kPieceBytes = kPieceRows * kHeadDim;
  static constexpr int kSteps = kBlock / 16, kParts = kHeadDim / 64;
  uint32_t raw[kSteps * kParts / 2][4];  // (step, part) pairs in this order: 2 registers each

  __device__ __forceinline__ void read(uint32_t buffer) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int half = lane / 8 % 2, second = lane / 16;
    const uint32_t rows =
        buffer + (kParts == 2 ? 0 : second * kPieceBytes) +
        byte_offset<kHeadDim>(8 * half + lane % 8, kParts == 2 ? 4 * second + warp : warp);
#pragma unroll
    for (int i = 0; i < kSteps * kParts / 2; ++i) {
      load_matrices_transposed(raw[i], rows + i * (2 / kParts) * kPieceBytes);
    }
  }
  // Operands of step k, one for each 64 head dimensions.
  __device__ __forceinline__ void dequantise(uint32_t (&a)[kParts][4], uint32_t block_scales,
                                             int k) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = 16 * k + 8 * i + static_cast<int>(threadIdx.x % 4) * 2;
      const uint32_t scales = load_shared_word(block_scales + key * 2);  // of two keys
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int at = k * kParts + part;
        const uint32_t quad = raw[at / 2][at % 2 * 2 + i];
        a[part][2 * i] = dequantise_even(quad, scales);
        a[part][2 * i + 1] = dequantise_odd(quad, scales);
      }
    }
  }
};

// Computes a block's scores and frees its stage, as soon as the bytes are in registers. Returns
// with complete scores, because the operands of scores and of values do not fit in the registers
// together. `queries`: shared address of the tiles of 64 columns.
template <int kHeadDim, int kRows, class Ring>
__device__ __forceinline__ void issue_scores_of_bytes(float (&s)[2][kRows / 2], Ring& keys,
                                                      uint32_t queries) {
  KeyBytes<kHeadDim> bytes;
  bytes.read(keys.buffer(), keys.scales());
  keys.release();
  uint32_t a[kHeadDim / 16][2][4];
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    const uint64_t columns =
        describe_swizzled_tile(queries) + (k / 4 * kRows * 128 >> 4) + k % 4 * kDescriptorStepK16;
#pragma unroll
    for (int t = 0; t < 2; ++t) bytes.dequantise(a[k][t], t, k);
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < 2; ++t) wgmma_k16(s[t], a[k][t], columns, k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
}

// Starts the products of a block's weights and values, and frees its stage. `weights`: shared
// address of the tiles of 64 keys.
template <int kHeadDim, int kRows, class Ring>
__device__ __forceinline__ void issue_values_of_bytes(float (&output)[kHeadDim / 64][kRows / 2],
                                                      Ring& values, uint32_t weights) {
  constexpr int kSteps = kBlock / 16, kParts = kHeadDim / 64;
  ValueBytes<kHeadDim> bytes;
  bytes.read(values.buffer());
  uint32_t a[kSteps][kParts][4];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const uint64_t keys =
        describe_swizzled_tile(weights) + (k / 4 * kRows * 128 >> 4) + k % 4 * kDescriptorStepK16;
    bytes.dequantise(a[k], values.scales(), k);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < kParts; ++part) wgmma_k16(output[part], a[k][part], keys, true);
  }
  wgmma_commit();
  values.release();
}

}  // namespace slimexx::kernels::attention
