// A head in the registers of a few lanes: kLanes of a warp hold 8 elements each, and 32 / kLanes
// heads share the warp. Where halves turn against each other and half of rotary_dim is a multiple
// of 4, lane l holds 4 elements of each half, 4l.. and rotary_dim/2 + 4l.., so that partners meet
// in one lane; else, and beyond rotary_dim, lane l holds elements 8l..
//
// The sum over a head is fixed by the shape: four chains in a lane (place mod 4, ascending), joined
// as (0 + 1) + (2 + 3), then lanes by xor kLanes / 2 .. 1.
#pragma once
#include "kernels/rows/row_ring.cuh"
#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels::rows {

// How a lane's elements move, and where their partners are.
enum HeadMode {
  kOneByOne,  // any shape and alignment; partners meet in shared memory
  kWhole,     // 16 bytes; pairs (2i, 2i + 1)
  kHalves,    // twice 8 bytes; pairs (i, i + 4) of the lane
};

// A lane's place in its head.
struct LanePlace {
  int low, high;  // first elements of both groups of 4
  bool turns;     // vectorised: all elements do, or none
};

__device__ __forceinline__ LanePlace find_place(const RotaryTables& t, int lane, int head_dim) {
  const int dim = static_cast<int>(t.rotary_dim);
  const bool turns = kChunk * lane < dim;
  if (turns && !t.interleaved && dim % 8 == 0 && head_dim % 8 == 0) {
    return {4 * lane, dim / 2 + 4 * lane, true};
  }
  return {kChunk * lane, kChunk * lane + 4, turns};
}

__device__ __forceinline__ int element_of(const LanePlace& p, int i) {
  return i < 4 ? p.low + i : p.high + i - 4;
}

template <HeadMode kMode>
__device__ __forceinline__ Chunk load_lane(const Bf16* head, const LanePlace& p, int dim) {
  if (p.low >= dim) return {};
  if constexpr (kMode == kWhole) return load_chunk<true>(head + p.low, kChunk);
  if constexpr (kMode == kHalves) {
    const uint2 low = *reinterpret_cast<const uint2*>(head + p.low);
    const uint2 high = *reinterpret_cast<const uint2*>(head + p.high);
    return {{low.x, low.y, high.x, high.y}};
  }
  const auto* element = reinterpret_cast<const uint16_t*>(head);
  Chunk c{};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const int e = element_of(p, i);
    if (e < dim) c.pair[i / 2] |= uint32_t{element[e]} << (i % 2 * 16);
  }
  return c;
}

template <HeadMode kMode>
__device__ __forceinline__ void store_lane(Bf16* head, const Chunk& c, const LanePlace& p,
                                           int dim) {
  if (p.low >= dim) return;
  if constexpr (kMode == kWhole) {
    store_chunk<true>(head + p.low, c, kChunk);
  } else if constexpr (kMode == kHalves) {
    *reinterpret_cast<uint2*>(head + p.low) = make_uint2(c.pair[0], c.pair[1]);
    *reinterpret_cast<uint2*>(head + p.high) = make_uint2(c.pair[2], c.pair[3]);
  } else {
    auto* element = reinterpret_cast<uint16_t*>(head);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int e = element_of(p, i);
      if (e < dim) element[e] = static_cast<uint16_t>(c.pair[i / 2] >> (i % 2 * 16));
    }
  }
}

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

// Cosines and sines of a lane: of its four pairs, or of its eight elements one by one. `sign` -1
// turns back.
template <HeadMode kMode>
struct Rotation {
  static constexpr int kCount = kMode == kOneByOne ? kChunk : 4;
  float c[kCount], s[kCount];
};

// cos, sin: the token's rows of the tables.
template <HeadMode kMode>
__device__ __forceinline__ Rotation<kMode> load_rotation(const RotaryTables& t, const float* cos,
                                                         const float* sin, const LanePlace& p,
                                                         float sign) {
  Rotation<kMode> r{};
  const int dim = static_cast<int>(t.rotary_dim);
  if constexpr (kMode != kOneByOne) {
    if (!p.turns) return r;
    const int at = kMode == kHalves ? p.low : p.low / 2;
    const float4 c = *reinterpret_cast<const float4*>(cos + at);
    const float4 s = *reinterpret_cast<const float4*>(sin + at);
    r.c[0] = c.x, r.c[1] = c.y, r.c[2] = c.z, r.c[3] = c.w;
    r.s[0] = sign * s.x, r.s[1] = sign * s.y, r.s[2] = sign * s.z, r.s[3] = sign * s.w;
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int e = element_of(p, i);
      if (e >= dim) continue;
      const int at = t.interleaved ? e / 2 : e % (dim / 2);
      r.c[i] = cos[at];
      r.s[i] = sign * sin[at];
    }
  }
  return r;
}

// (a, b) -> (a c - b s, b c + a s), where the first product of each is not rounded.
__device__ __forceinline__ float turn_first(float a, float b, float c, float s) {
  return __fmaf_rn(a, c, -__fmul_rn(b, s));
}
__device__ __forceinline__ float turn_second(float a, float b, float c, float s) {
  return __fmaf_rn(b, c, __fmul_rn(a, s));
}

// All lanes of the warp take part. `stage`: 8 floats for every thread of the block, used one by one
// only.
template <int kLanes, HeadMode kMode>
__device__ __forceinline__ void rotate(float (&v)[kChunk], const Rotation<kMode>& r,
                                       const RotaryTables& t, const LanePlace& p, float* stage) {
  if constexpr (kMode == kOneByOne) {
    const int dim = static_cast<int>(t.rotary_dim);
    float* head = stage + (threadIdx.x - threadIdx.x % kLanes) * kChunk;
    // Places of lanes without elements lie behind the head's, within its lanes' share.
#pragma unroll
    for (int i = 0; i < kChunk; ++i) head[element_of(p, i)] = v[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int e = element_of(p, i);
      if (e >= dim) continue;
      const bool first = t.interleaved ? e % 2 == 0 : e < dim / 2;
      const float partner = head[t.interleaved ? e ^ 1 : first ? e + dim / 2 : e - dim / 2];
      v[i] = first ? turn_first(v[i], partner, r.c[i], r.s[i])
                   : turn_second(partner, v[i], r.c[i], r.s[i]);
    }
    __syncwarp();
  } else if (p.turns) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& first = v[kMode == kHalves ? i : 2 * i];
      float& second = v[kMode == kHalves ? i + 4 : 2 * i + 1];
      const float a = first, b = second;
      first = turn_first(a, b, r.c[i], r.s[i]);
      second = turn_second(a, b, r.c[i], r.s[i]);
    }
  }
}

inline bool is_served(const QkvShape& s, const RotaryTables& t) {
  const int64_t row = (s.query_heads + 2 * s.kv_heads) * s.head_dim;
  return s.tokens >= 0 && s.tokens <= INT_MAX && s.query_heads >= 0 && s.kv_heads >= 0 &&
         s.head_dim > 0 && s.head_dim <= 32 * kChunk && s.head_dim % 2 == 0 && row <= INT_MAX &&
         t.rotary_dim >= 0 && t.rotary_dim <= s.head_dim && t.rotary_dim % 2 == 0;
}

// `aligned`: all rows of bf16 start at 16 bytes if head_dim is a multiple of 8.
inline HeadMode choose_mode(const QkvShape& s, const RotaryTables& t, bool aligned) {
  if (!aligned || s.head_dim % kChunk != 0 || t.rotary_dim % 8 != 0 || !is_aligned(t.cos) ||
      !is_aligned(t.sin)) {
    return kOneByOne;
  }
  return t.interleaved || t.rotary_dim == 0 ? kWhole : kHalves;
}

// Calls run with the compile-time number of lanes that a head takes, and the mode.
template <int kLanes, class Run>
cudaError_t with_mode(HeadMode mode, const Run& run) {
  if (mode == kOneByOne) return run.template operator()<kLanes, kOneByOne>();
  return mode == kWhole ? run.template operator()<kLanes, kWhole>()
                        : run.template operator()<kLanes, kHalves>();
}
template <class Run>
cudaError_t with_lanes(int64_t head_dim, HeadMode mode, const Run& run) {
  const int64_t chunks = divide_up(head_dim, kChunk);
  if (chunks <= 1) return with_mode<1>(mode, run);
  if (chunks <= 2) return with_mode<2>(mode, run);
  if (chunks <= 4) return with_mode<4>(mode, run);
  if (chunks <= 8) return with_mode<8>(mode, run);
  if (chunks <= 16) return with_mode<16>(mode, run);
  return with_mode<32>(mode, run);
}

// Threads of a block that serves all of a token's heads in as few rounds as 256 threads allow.
inline int choose_head_threads(int64_t heads, int lanes) {
  const int64_t rounds = divide_up(heads * lanes, kMaxThreads);
  return static_cast<int>(divide_up(divide_up(heads, rounds) * lanes, 32) * 32);
}

}  // namespace slimexx::kernels::rows
