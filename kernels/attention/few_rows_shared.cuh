// Shared memory of few_rows.cu: its layout, and how the four computing warps exchange a block's
// scores through it.
#pragma once
#include <cstdint>

#include "kernels/attention/few_rows_load.cuh"
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/common/wgmma_turned_a.cuh"

namespace slimexx::kernels::attention {

// Descriptor of 64 rows of 128 bytes: groups of 8 rows, with a distance of `stride` bytes from
// group to group.
__device__ __forceinline__ uint64_t describe_rows(uint32_t address, uint32_t stride) {
  return describe_swizzled_tile(address) + (static_cast<uint64_t>((stride - 1024) >> 4) << 32);
}

template <int kHeadDim, int kRows, bool kFp8>
struct FewRowsShared {
  // FP8: two thread blocks share a multiprocessor.
  static constexpr int kStages = (kFp8 && kRows == 16 ? 320 : 384) / kHeadDim;
  using Ring = BlockRing<kHeadDim, kStages, kFp8>;
  static constexpr uint32_t kTileBytes = kRows * 128;  // all query rows, 64 columns
  static constexpr uint32_t kQueriesAt = 2 * Ring::kBytes;
  static constexpr uint32_t kWeightsAt = kQueriesAt + kHeadDim / 64 * kTileBytes;  // for 2 blocks
  // Floats from chain to chain and from row to row, padded against bank conflicts. The chains are
  // the partial sums of a row's weights (few_rows_walk.cuh).
  static constexpr uint32_t kChainPitch = kBlock / 8 + 4;
  static constexpr uint32_t kRowPitch = 8 * kChainPitch + 4;
  static constexpr uint32_t kChainsAt = kWeightsAt + 4 * kTileBytes;
  static constexpr uint32_t kMaximaAt = kChainsAt + kRows * kRowPitch * 4;  // [warp][row]
  static constexpr uint32_t kDecaysAt = kMaximaAt + 4 * kRows * 4;
  static constexpr uint32_t kSumsAt = kDecaysAt + kRows * 4;
  static constexpr uint32_t kScalesAt = kSumsAt + kRows * 4;
  static constexpr uint32_t kBarriersAt = kScalesAt + 2 * Ring::kScaleBytes;
  static constexpr uint32_t kBytes = kBarriersAt + 2 * Ring::kBarrierBytes;
};

// The two functions below exchange a block's scores among the four warps. s[t] is the accumulator
// fragment of product t: the thread's scores or weights.

// Sets `highest` to the highest score over the block's keys for each of the thread's kRows / 4
// query rows. `maxima`: [4 warps][kRows] floats in shared memory.
template <int kRows>
__device__ __forceinline__ void find_highest(const float (&s)[2][kRows / 2], float* maxima,
                                             float (&highest)[kRows / 4]) {
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int n = 0; n < kRows / 4; ++n) {
    const int at = 4 * (n / 2) + n % 2;
    highest[n] = fmaxf(fmaxf(s[0][at], s[0][at + 2]), fmaxf(s[1][at], s[1][at + 2]));
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      highest[n] = fmaxf(highest[n], __shfl_xor_sync(0xffffffffu, highest[n], lanes));
    }
  }
  maxima += threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < kRows / 4; n += 2) {
    if (threadIdx.x % 32 < 4) {
      *reinterpret_cast<float2*>(maxima + warp * kRows + 4 * n) =
          make_float2(highest[n], highest[n + 1]);
    }
  }
  sync_named(1, 128);
#pragma unroll
  for (int n = 0; n < kRows / 4; n += 2) {
#pragma unroll
    for (int other = 0; other < 4; ++other) {
      const float2 x = *reinterpret_cast<const float2*>(maxima + other * kRows + 4 * n);
      highest[n] = other == 0 ? x.x : fmaxf(highest[n], x.x);
      highest[n + 1] = other == 0 ? x.y : fmaxf(highest[n + 1], x.y);
    }
  }
}

// Stores P [rows][keys] in bf16 as the B operand of the next product, in tiles of 64 keys (kRows
// rows of 128 bytes). `tiles`: shared address of the first tile.
template <int kRows>
__device__ __forceinline__ void store_weights(const float (&s)[2][kRows / 2], uint32_t tiles) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int t = lane / 16, i = lane / 8 % 2;  // the 8 x 8 matrix whose row this lane addresses
  const uint32_t address =
      tiles + warp / 2 * (kRows * 128) + swizzled_offset(lane % 8, warp % 2 * 4 + 2 * i + t);
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    store_matrices_transposed(address + g * 1024, pack_bf16(s[0][4 * g], s[0][4 * g + 1]),
                              pack_bf16(s[0][4 * g + 2], s[0][4 * g + 3]),
                              pack_bf16(s[1][4 * g], s[1][4 * g + 1]),
                              pack_bf16(s[1][4 * g + 2], s[1][4 * g + 3]));
  }
}

}  // namespace slimexx::kernels::attention
