// Heads in registers: kLanes lanes of a warp hold one head, 16 elements (two chunks of 8) each, and
// 32 / kLanes heads share the warp. If the rotation pairs elements of the two halves and rotary_dim
// and head_dim are multiples of 16, lane l holds 8 elements from 8l on and 8 elements from
// rotary_dim/2 + 8l on, so that both elements of a pair are in one lane. Otherwise, and beyond
// rotary_dim, lane l holds 16 elements from 16l on.
//
// The order of a sum over a head depends on the shape only. A lane forms two sums of 8 products
// each: four chains of two products, joined as (0 + 1) + (2 + 3). If the lane's chunks come from
// the two halves, sum j has elements 4j .. 4j + 3 of both chunks; otherwise it has chunk j.
#pragma once
#include "kernels/rows/partial_sums.cuh"
#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels::rows {

// How a lane loads its elements, and which elements form a rotated pair.
enum HeadMode {
  kOneByOne,    // any shape and alignment; pairs are exchanged through shared memory
  kPairs,       // 16-byte loads; the lane's elements 2i and 2i + 1 are a pair
  kHalves,      // 16-byte loads; elements i and i + 8 are a pair; the whole head rotates
  kSomeHalves,  // as kHalves, but lanes beyond rotary_dim do not rotate
};

inline constexpr int kPart = 2 * kChunk;  // elements per lane

// A lane's place in its head.
struct LanePlace {
  int low, high;  // first element of each chunk
  bool rotates;   // elements are below rotary_dim: all of them in the vectorised modes
  bool halved;    // one chunk from each half of the head
};

__device__ __forceinline__ LanePlace find_place(const RotaryTables& t, int lane, int head_dim) {
  const int dim = static_cast<int>(t.rotary_dim);
  const bool rotates = kPart * lane < dim;
  if (rotates && !t.interleaved && dim % kPart == 0 && head_dim % kPart == 0) {
    return {kChunk * lane, dim / 2 + kChunk * lane, true, true};
  }
  return {kPart * lane, kPart * lane + kChunk, rotates, false};
}

__device__ __forceinline__ int element_of(const LanePlace& p, int i) {
  return i < kChunk ? p.low + i : p.high + i - kChunk;
}

// A lane's elements, as bf16.
struct HeadPart {
  Chunk low, high;
};

template <HeadMode kMode>
__device__ __forceinline__ HeadPart load_part(const Bf16* head, const LanePlace& p, int dim) {
  constexpr bool kVector = kMode != kOneByOne;
  if (p.low >= dim) return {};
  return {load_chunk<kVector>(head + p.low, dim - p.low),
          load_chunk<kVector>(head + p.high, dim - p.high)};
}

template <HeadMode kMode>
__device__ __forceinline__ void store_part(Bf16* head, const HeadPart& part, const LanePlace& p,
                                           int dim) {
  constexpr bool kVector = kMode != kOneByOne;
  if (p.low >= dim) return;
  store_chunk<kVector>(head + p.low, part.low, dim - p.low);
  store_chunk<kVector>(head + p.high, part.high, dim - p.high);
}

// Stops the compiler from keeping the unpacked part, in twice the registers, from token to token.
__device__ __forceinline__ void forget(HeadPart& p) {
  for (Chunk* c : {&p.low, &p.high}) {
    asm volatile("" : "+r"(c->pair[0]), "+r"(c->pair[1]), "+r"(c->pair[2]), "+r"(c->pair[3]));
  }
}

__device__ __forceinline__ void unpack(float (&f)[kPart], const HeadPart& part) {
  float low[kChunk], high[kChunk];
  unpack(low, part.low);
  unpack(high, part.high);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) f[i] = low[i], f[i + kChunk] = high[i];
}
__device__ __forceinline__ HeadPart pack(const float (&f)[kPart]) {
  float low[kChunk], high[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) low[i] = f[i], high[i] = f[i + kChunk];
  return {pack(low), pack(high)};
}

// The lane's two sums of a[i] b[i].
struct LaneSums {
  float first, second;
};
template <HeadMode kMode>
__device__ __forceinline__ LaneSums sum_products(const float (&a)[kPart], const float (&b)[kPart],
                                                 const LanePlace& place) {
  float first[4], second[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool halved = kMode == kHalves || (kMode != kPairs && place.halved);
    const float a0 = halved ? a[8 + i] : a[4 + i], b0 = halved ? b[8 + i] : b[4 + i];
    const float a1 = halved ? a[4 + i] : a[8 + i], b1 = halved ? b[4 + i] : b[8 + i];
    first[i] = __fmaf_rn(a0, b0, __fmul_rn(a[i], b[i]));
    second[i] = __fmaf_rn(a[12 + i], b[12 + i], __fmul_rn(a1, b1));
  }
  return {join_chains(first), join_chains(second)};
}

// Sums over the lanes of a head, by xor kLanes / 2 .. 1.
template <int kLanes, int kCount>
__device__ __forceinline__ void sum_over_head(float (&v)[kCount]) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      v[i] = __fadd_rn(v[i], __shfl_xor_sync(0xffffffffu, v[i], distance));
    }
  }
}

// A lane's cosines and sines: one per pair, or one per element in kOneByOne.
template <HeadMode kMode>
struct Rotation {
  static constexpr int kCount = kMode == kOneByOne ? kPart : kChunk;
  float c[kCount], s[kCount];
};

// Loads the cosines and sines for `position`.
template <HeadMode kMode>
__device__ __forceinline__ Rotation<kMode> load_rotation(const RotaryTables& t, int position,
                                                         const LanePlace& p) {
  Rotation<kMode> r{};
  const int dim = static_cast<int>(t.rotary_dim);
  const int64_t row = int64_t{position} * (dim / 2);
  if constexpr (kMode != kOneByOne) {
    if (!p.rotates) return r;
    const int64_t at = row + (kMode == kPairs ? p.low / 2 : p.low);
    load_floats<true>(r.c, t.cos + at, kChunk);
    load_floats<true>(r.s, t.sin + at, kChunk);
  } else {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const int e = element_of(p, i);
      if (e >= dim) continue;
      const int64_t at = row + (t.interleaved ? e / 2 : e % (dim / 2));
      r.c[i] = t.cos[at];
      r.s[i] = t.sin[at];
    }
  }
  return r;
}

// (a, b) -> (a c - b s, b c + a s); the first product of each is not rounded. kBack rotates by the
// negative angle.
template <bool kBack>
__device__ __forceinline__ float rotate_first(float a, float b, float c, float s) {
  const float other = __fmul_rn(b, s);
  return __fmaf_rn(a, c, kBack ? other : -other);
}
template <bool kBack>
__device__ __forceinline__ float rotate_second(float a, float b, float c, float s) {
  const float other = __fmul_rn(a, s);
  return __fmaf_rn(b, c, kBack ? -other : other);
}

// All lanes of the warp must call this function. `stage`: shared memory, 16 floats per thread of
// the block; only kOneByOne uses it.
template <int kLanes, HeadMode kMode, bool kBack>
__device__ __forceinline__ void rotate(float (&v)[kPart], const Rotation<kMode>& r,
                                       const RotaryTables& t, const LanePlace& p, float* stage) {
  if constexpr (kMode == kOneByOne) {
    const int dim = static_cast<int>(t.rotary_dim);
    float* head = stage + (threadIdx.x - threadIdx.x % kLanes) * kPart;
    // Lanes without elements write after the head's elements, within the head's part of `stage`.
#pragma unroll
    for (int i = 0; i < kPart; ++i) head[element_of(p, i)] = v[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const int e = element_of(p, i);
      if (e >= dim) continue;
      const bool first = t.interleaved ? e % 2 == 0 : e < dim / 2;
      const float partner = head[t.interleaved ? e ^ 1 : first ? e + dim / 2 : e - dim / 2];
      v[i] = first ? rotate_first<kBack>(v[i], partner, r.c[i], r.s[i])
                   : rotate_second<kBack>(partner, v[i], r.c[i], r.s[i]);
    }
    __syncwarp();
  } else if (kMode == kHalves || p.rotates) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float& first = v[kMode == kPairs ? 2 * i : i];
      float& second = v[kMode == kPairs ? 2 * i + 1 : i + kChunk];
      const float a = first, b = second;
      first = rotate_first<kBack>(a, b, r.c[i], r.s[i]);
      second = rotate_second<kBack>(a, b, r.c[i], r.s[i]);
    }
  }
}

}  // namespace slimexx::kernels::rows
