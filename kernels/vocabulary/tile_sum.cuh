// The fixed order in which a row of logits is summed over the vocabulary (numerics contract, N4 and
// N9). Every kernel that computes a log-normaliser or an entropy calls these functions, so that the
// bits are the same whether the logits come from memory or from a product's accumulators.
// Multiplications and additions are intrinsics, so that no compiler flag contracts them.
//
// Tile: kTileColumns columns from a multiple of kTileColumns; columns past the end of the row have
// the value -inf. Four neighbouring lanes share a tile, as they share a row of a wgmma accumulator
// m64n256: value k = 2j or 2j + 1 of lane q is column 8j + 2q or 8j + 2q + 1, j = 0..31. With z =
// logit / temperature and d = z - m:
//   m  largest z of the tile (any order)
//   s  sum of exp(d):     each lane sums over ascending k from 0, then (s0 + s1) + (s2 + s3)
//   t  sum of exp(d) * d: the same order, each addition one fused multiply-add
// Row: M is the largest m. One warp sums the tiles' s * exp(m - M) to S and their
// (t + (m - M) * s) * exp(m - M) to T: lane l sums tiles l, l + 32, ..., then the lanes add by a
// butterfly exchange over distances 16, 8, 4, 2, 1. Then
//   lse = M + log S,   entropy = log S - T / S.
// No summand of T is above 0, so nothing cancels.
//
// A logit of -inf has weight 0. A NaN or +inf anywhere makes lse and entropy NaN. If all logits are
// -inf, lse is -inf and entropy is NaN.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/exponential.cuh"
#include "slimexx/kernels/vocabulary.h"

namespace slimexx::kernels::vocabulary {

constexpr int kTileColumns = static_cast<int>(kLogSumTile);
constexpr int kLanesPerTile = 4;
constexpr int kLaneValues = kTileColumns / kLanesPerTile;
constexpr float kInfinity = __builtin_inff();
// Replaces d = -inf when d is a factor: exp(d) is 0, and 0 * -inf would be NaN.
constexpr float kLowestDifference = -1e30f;

struct TileSum {
  float maximum, sum, weighted;  // m, s, t of the header comment; weighted is 0 if not computed
};

// Partial results in global memory: arrays [rows, tiles] f32 (row stride `tiles`), one value per
// tile. `weighted` is null if no entropy is needed.
struct TilePartials {
  float* maximum = nullptr;
  float* sum = nullptr;
  float* weighted = nullptr;
  int64_t tiles = 0;
};

inline __host__ __device__ int64_t count_tiles(int64_t columns) {
  return (columns + kTileColumns - 1) / kTileColumns;
}

// Column, within the tile, of value k of lane q.
inline __host__ __device__ constexpr int tile_column(int q, int k) {
  return 8 * (k / 2) + 2 * q + k % 2;
}

// logit / temperature, rounded once. LogitDivider gives the same bits, faster.
__device__ __forceinline__ float divide_logit(float logit, float temperature) {
  return __fdiv_rn(logit, temperature);
}

// The quotients of divide_logit from one reciprocal: an estimate, corrected twice by its exact
// remainder. Nothing overflows or underflows for |logit| from 2^-60 to 2^60 and temperatures from
// 2^-30 to 2^30; all other operands use divide_logit.
struct LogitDivider {
  float temperature, reciprocal;
  bool is_usual;

  __device__ explicit LogitDivider(float t) {
    temperature = t;
    reciprocal = __fdiv_rn(1.0f, t);
    is_usual = t >= 0x1p-30f && t <= 0x1p30f;
  }

  __device__ __forceinline__ float divide_usual(float logit) const {
    float quotient = __fmul_rn(logit, reciprocal);
    quotient = __fmaf_rn(__fmaf_rn(-temperature, quotient, logit), reciprocal, quotient);
    return __fmaf_rn(__fmaf_rn(-temperature, quotient, logit), reciprocal, quotient);
  }
  __device__ __forceinline__ float operator()(float logit) const {
    const float size = fabsf(logit);
    return is_usual && size >= 0x1p-60f && size <= 0x1p60f ? divide_usual(logit)
                                                           : divide_logit(logit, temperature);
  }
  // Divides all values of a lane.
  template <int kCount>
  __device__ __forceinline__ void divide_all(float (&z)[kCount]) const {
    float smallest = fabsf(z[0]), largest = smallest;
#pragma unroll
    for (int k = 1; k < kCount; ++k) {
      smallest = fminf(smallest, fabsf(z[k]));
      largest = fmaxf(largest, fabsf(z[k]));
    }
    // fminf and fmaxf skip a NaN; both divisions keep it.
    if (is_usual && smallest >= 0x1p-60f && largest <= 0x1p60f) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) z[k] = divide_usual(z[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kCount; ++k) z[k] = divide_logit(z[k], temperature);
    }
  }
};

// Natural logarithm of x >= 2^-126, about 1 ulp; 0 gives -inf, NaN and +inf pass through.
// x = 2^e * v, v in [sqrt(1/2), sqrt(2)); log v = 2 atanh(g), g = (v - 1) / (v + 1).
__device__ __forceinline__ float fixed_log(float x) {
  if (!(x > 0.0f) || x == kInfinity) return x == 0.0f ? -kInfinity : x;
  const int bits = __float_as_int(x) - 0x3f3504f3;
  const float e = static_cast<float>(bits >> 23);
  const float v = __int_as_float((bits & 0x007fffff) + 0x3f3504f3);
  const float f = __fadd_rn(v, -1.0f);
  const float g = __fdiv_rn(f, __fadd_rn(v, 1.0f));
  const float gg = __fmul_rn(g, g);
  float p = __fmaf_rn(gg, 2.0f / 9.0f, 2.0f / 7.0f);
  p = __fmaf_rn(gg, p, 2.0f / 5.0f);
  p = __fmaf_rn(gg, p, 2.0f / 3.0f);
  p = __fmul_rn(gg, p);
  // log v = 2g + g p. Mathematically 2g = f - g f, and f has no rounding error from the division.
  const float tail = __fmaf_rn(g, __fadd_rn(p, -f), __fmul_rn(e, 1.42860677e-6f));
  return __fmaf_rn(e, 0.693145751953125f, __fadd_rn(f, tail));
}

// The shift before the exponential: the maximum, or 0 if all logits are -inf.
__device__ __forceinline__ float shift_of(float maximum) {
  return maximum == -kInfinity ? 0.0f : maximum;
}

// Adds one value to a lane's sums of exp(d) and exp(d) * d.
template <bool kWeighted>
__device__ __forceinline__ void add_value(float z, float shift, float& sum, float& weighted) {
  const float d = __fadd_rn(z, -shift);
  const float e = exp_approx(d);
  sum = __fadd_rn(sum, e);
  if constexpr (kWeighted) weighted = __fmaf_rn(e, fmaxf(d, kLowestDifference), weighted);
}

// Reductions over the four lanes of a tile; all four get the result.
__device__ __forceinline__ float join_maximum(float m) {
  m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
  return fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
}
__device__ __forceinline__ float join_sum(float s) {
  s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 1));
  return __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 2));
}

// The partial result of a tile that lanes 4i .. 4i + 3 share. All 32 lanes of a warp must call this
// function, for eight tiles. value(k) gives the lane's value k = 0..63 after the temperature, -inf
// for an absent column. `value` is called with constants, so it may index registers. For a wgmma
// accumulator m64n256 with registers acc[4j + 2i + c], row half i: value(k) = acc[4 * (k / 2) + 2 *
// i + k % 2].
template <bool kWeighted, class Value>
__device__ __forceinline__ TileSum sum_tile(Value value) {
  float m = -kInfinity;
#pragma unroll
  for (int k = 0; k < kLaneValues; ++k) m = fmaxf(m, value(k));
  m = join_maximum(m);
  const float shift = shift_of(m);
  float s = 0.0f, t = 0.0f;
#pragma unroll
  for (int k = 0; k < kLaneValues; ++k) add_value<kWeighted>(value(k), shift, s, t);
  return {m, join_sum(s), kWeighted ? join_sum(t) : 0.0f};
}

// Merges a row's tiles (arrays of `tiles` values; `weighted` may be null if not kWeighted). Called
// by a whole warp; all lanes get the result.
template <bool kWeighted>
__device__ __forceinline__ TileSum merge_tiles(const float* maximum, const float* sum,
                                               const float* weighted, int tiles) {
  constexpr int kAtOnce = 8;  // loads in flight; absent tiles add 0
  const int lane = static_cast<int>(threadIdx.x % 32);
  float m = -kInfinity;
  for (int first = lane; first < tiles; first += 32 * kAtOnce) {
    float maxima[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      maxima[i] = first + 32 * i < tiles ? maximum[first + 32 * i] : -kInfinity;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) m = fmaxf(m, maxima[i]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, distance));
  }
  const float shift = shift_of(m);
  float s = 0.0f, t = 0.0f;
  for (int first = lane; first < tiles; first += 32 * kAtOnce) {
    float maxima[kAtOnce], sums[kAtOnce], terms[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool inside = first + 32 * i < tiles;
      maxima[i] = inside ? maximum[first + 32 * i] : -kInfinity;
      sums[i] = inside ? sum[first + 32 * i] : 0.0f;
      if constexpr (kWeighted) terms[i] = inside ? weighted[first + 32 * i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float d = __fadd_rn(maxima[i], -shift);
      const float e = exp_approx(d);
      s = __fmaf_rn(sums[i], e, s);
      if constexpr (kWeighted) {
        t = __fmaf_rn(__fmaf_rn(fmaxf(d, kLowestDifference), sums[i], terms[i]), e, t);
      }
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, distance));
    if constexpr (kWeighted) t = __fadd_rn(t, __shfl_xor_sync(0xffffffffu, t, distance));
  }
  return {m, s, t};
}

__device__ __forceinline__ float row_lse(const TileSum& row) {
  return __fadd_rn(shift_of(row.maximum), fixed_log(row.sum));
}
__device__ __forceinline__ float row_entropy(const TileSum& row) {
  return __fadd_rn(fixed_log(row.sum), -__fdiv_rn(row.weighted, row.sum));
}

// The contribution of one leaf to the entropy of its row: p (entropy - log p), with the leaf's own
// entropy and its share p = exp(lse - whole_lse) of the row. If the leaf is the whole row, the
// result has the bits of `entropy`.
__device__ __forceinline__ float leaf_entropy(float entropy, float lse, float whole_lse) {
  if (lse == -kInfinity && whole_lse != -kInfinity)
    return 0.0f * whole_lse;  // 0, or NaN if whole_lse is
  const float log_share = __fadd_rn(lse, -whole_lse);
  return __fmul_rn(expf(log_share), __fadd_rn(entropy, -log_share));
}

}  // namespace slimexx::kernels::vocabulary
