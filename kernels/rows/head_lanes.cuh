// A head in the registers of a few lanes: kLanes of a warp hold 8 neighbouring elements each, and
// 32 / kLanes heads share the warp. The sum over a head is fixed by head_dim: four chains in a lane
// as in row_sum.cuh, then lanes by xor kLanes / 2 .. 1.
//
// Vectorised: head_dim is a multiple of 8 and every lane's elements turn alike, with partners in
// one lane (interleaved: this lane). Otherwise partners pass through shared memory, the arithmetic
// is the same.
#pragma once
#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels::rows {

inline constexpr int kHeadThreads = 256;

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

// value' = value * c + partner * s for the elements of this lane; s carries the sign of the side.
struct Rotation {
  float c[kChunk], s[kChunk];
};

template <bool kVector>
__device__ __forceinline__ Rotation load_rotation(const RotaryTables& t, int64_t token, int begin,
                                                  bool inverse) {
  Rotation r{};
  const int dim = static_cast<int>(t.rotary_dim), half = dim / 2;
  if (begin >= dim) return r;
  const int64_t row = int64_t{t.positions[token]} * half;
  const float sign = inverse ? -1.0f : 1.0f;
  if (kVector && !t.interleaved) {
    const bool first = begin < half;
    const int64_t at = row + (first ? begin : begin - half);
    load_floats<true>(r.c, t.cos + at, kChunk);
    load_floats<true>(r.s, t.sin + at, kChunk);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) r.s[i] *= first ? -sign : sign;
    return r;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const int e = begin + i;
    if (e >= dim) break;
    const bool first = t.interleaved ? e % 2 == 0 : e < half;
    const int64_t at = row + (t.interleaved ? e / 2 : e % half);
    r.c[i] = t.cos[at];
    r.s[i] = (first ? -sign : sign) * t.sin[at];
  }
  return r;
}

// All lanes of the warp take part. `stage`: [kHeadThreads][kChunk] floats of the block, not used
// when vectorised.
template <int kLanes, bool kVector>
__device__ __forceinline__ void rotate(float (&v)[kChunk], const Rotation& r, int begin, int dim,
                                       bool interleaved, float* stage) {
  float partner[kChunk];
  const int half = dim / 2;
  if constexpr (kVector) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int other = begin < half ? lane + half / kChunk : lane - half / kChunk;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      partner[i] = interleaved ? v[i ^ 1] : __shfl_sync(0xffffffffu, v[i], other & 31);
    }
  } else {
    store_floats<false>(stage + threadIdx.x * kChunk, v, kChunk);
    __syncwarp();
    const float* head = stage + (threadIdx.x - threadIdx.x % kLanes) * kChunk;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int e = begin + i;
      const int other = interleaved ? e ^ 1 : e < half ? e + half : e - half;
      partner[i] = e < dim ? head[other] : 0.0f;
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (begin + i < dim) v[i] = __fadd_rn(__fmul_rn(v[i], r.c[i]), __fmul_rn(partner[i], r.s[i]));
  }
}

inline bool is_served(const QkvShape& s, const RotaryTables& t) {
  const int64_t row = (s.query_heads + 2 * s.kv_heads) * s.head_dim;
  return s.tokens >= 0 && s.tokens <= INT_MAX && s.query_heads >= 0 && s.kv_heads >= 0 &&
         s.head_dim > 0 && s.head_dim <= 32 * kChunk && s.head_dim % 2 == 0 && row <= INT_MAX &&
         t.rotary_dim >= 0 && t.rotary_dim <= s.head_dim && t.rotary_dim % 2 == 0;
}

inline bool turns_by_chunks(const QkvShape& s, const RotaryTables& t) {
  return s.head_dim % kChunk == 0 && t.rotary_dim % (t.interleaved ? kChunk : 2 * kChunk) == 0 &&
         is_aligned(t.cos) && is_aligned(t.sin);
}

// Calls run with the compile-time number of lanes that a head takes.
template <class Run>
cudaError_t with_lanes(int64_t head_dim, const Run& run) {
  const int64_t chunks = divide_up(head_dim, kChunk);
  if (chunks <= 1) return run.template operator()<1>();
  if (chunks <= 2) return run.template operator()<2>();
  if (chunks <= 4) return run.template operator()<4>();
  if (chunks <= 8) return run.template operator()<8>();
  if (chunks <= 16) return run.template operator()<16>();
  return run.template operator()<32>();
}

}  // namespace slimexx::kernels::rows
