// The scales of a K block as a thread needs them for its accumulators, and the scaled addition.
#pragma once
#include "kernels/float8/load.cuh"

namespace slimexx::kernels {

template <class Tile>
using Float8Sums = float[Tile::kColumns / 2];

// The scales of a K block. Plain: for each of the thread's two rows, its scale times that of each
// unit of columns. Swapped, few columns: those of its two rows times those of its columns. Swapped,
// more columns: the scales of the two rows; those of the columns stay in shared memory.
template <class Tile>
struct BlockScales {
  static constexpr bool kProducts = Tile::kSwap && Tile::kEarlyScales;
  static constexpr int kPerRow = kProducts ? Tile::kColumns / 4 : Tile::kSwap ? 1 : Tile::kUnits;
  float low[kPerRow], high[kPerRow];
  const float* columns;

  // x_scales: from the tile's first token on.
  __device__ __forceinline__ void read(const float* slot, const float* x_scales, ScaleColumns own) {
    columns = x_scales + 2 * (threadIdx.x % 4);
    if constexpr (kProducts) {
      const float of_low = slot[own.low], of_high = slot[own.high];
#pragma unroll
      for (int j = 0; j < kPerRow / 2; ++j) {
        const float2 x = read_scales(columns + 8 * j);
        low[2 * j] = __fmul_rn(x.x, of_low);
        low[2 * j + 1] = __fmul_rn(x.y, of_low);
        high[2 * j] = __fmul_rn(x.x, of_high);
        high[2 * j + 1] = __fmul_rn(x.y, of_high);
      }
    } else if constexpr (Tile::kSwap) {
      low[0] = slot[own.low];
      high[0] = slot[own.high];
    } else {
#pragma unroll
      for (int i = 0; i < kPerRow; ++i) {
        low[i] = __fmul_rn(slot[own.low], slot[i]);
        high[i] = __fmul_rn(slot[own.high], slot[i]);
      }
    }
  }
  __device__ __forceinline__ static float2 read_scales(const float* from) {
    if constexpr (Tile::kGrouped || Tile::kQuantises)
      return {from[0], from[1]};  // may begin at any token
    return *reinterpret_cast<const float2*>(from);
  }
  __device__ __forceinline__ void add(const Float8Sums<Tile>& t, Float8Sums<Tile>& sums) const {
#pragma unroll
    for (int j = 0; j < Tile::kColumns / 8; ++j) {
      float scale[4];
      if constexpr (kProducts) {
        scale[0] = low[2 * j];
        scale[1] = low[2 * j + 1];
        scale[2] = high[2 * j];
        scale[3] = high[2 * j + 1];
      } else if constexpr (Tile::kSwap) {
        const float2 x = read_scales(columns + 8 * j);
        scale[0] = __fmul_rn(x.x, low[0]);
        scale[1] = __fmul_rn(x.y, low[0]);
        scale[2] = __fmul_rn(x.x, high[0]);
        scale[3] = __fmul_rn(x.y, high[0]);
      } else {
        const int unit = Tile::kGateUp ? j % 2 : j / (Tile::kScaleColumns / 8);
        scale[0] = scale[1] = low[unit];
        scale[2] = scale[3] = high[unit];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[4 * j + i] = __fmaf_rn(t[4 * j + i], scale[i], sums[4 * j + i]);
      }
    }
  }
};

}  // namespace slimexx::kernels
