// A chunk is eight neighbouring bf16 of a row in one thread: 16 bytes. The scalar path loads the
// same elements one by one, so that alignment never changes which elements a thread adds.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/bf16.cuh"

namespace slimexx::kernels::rows {

using Bf16 = __nv_bfloat16;
inline constexpr int kChunk = 8;

struct Chunk {
  uint32_t pair[kChunk / 2];  // element 2i in the low half
};

// `valid` elements of the chunk exist; the remaining elements read as zero. If vectorised, all must
// exist and p must be aligned to 16 bytes.
template <bool kVector>
__device__ __forceinline__ Chunk load_chunk(const Bf16* p, int valid) {
  Chunk c;
  if constexpr (kVector) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    c = {{v.x, v.y, v.z, v.w}};
  } else {
    const auto* element = reinterpret_cast<const uint16_t*>(p);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const uint32_t low = 2 * i < valid ? element[2 * i] : 0;
      const uint32_t high = 2 * i + 1 < valid ? element[2 * i + 1] : 0;
      c.pair[i] = low | high << 16;
    }
  }
  return c;
}

template <bool kVector>
__device__ __forceinline__ void store_chunk(Bf16* p, const Chunk& c, int valid) {
  if constexpr (kVector) {
    *reinterpret_cast<uint4*>(p) = make_uint4(c.pair[0], c.pair[1], c.pair[2], c.pair[3]);
  } else {
    auto* element = reinterpret_cast<uint16_t*>(p);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < valid) element[i] = static_cast<uint16_t>(c.pair[i / 2] >> (i % 2 * 16));
    }
  }
}

__device__ __forceinline__ void unpack(float (&f)[kChunk], const Chunk& c) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    f[2 * i] = widen_low(c.pair[i]);
    f[2 * i + 1] = widen_high(c.pair[i]);
  }
}

// Rounds to nearest even.
__device__ __forceinline__ Chunk pack(const float (&f)[kChunk]) {
  Chunk c;
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) c.pair[i] = pack_bf16(f[2 * i], f[2 * i + 1]);
  return c;
}

// Eight floats; `valid` as for load_chunk. Vectorised: two loads of 16 bytes.
template <bool kVector>
__device__ __forceinline__ void load_floats(float (&f)[kChunk], const float* p, int valid) {
  if constexpr (kVector) {
    const float4 a = reinterpret_cast<const float4*>(p)[0];
    const float4 b = reinterpret_cast<const float4*>(p)[1];
    f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
    f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) f[i] = i < valid ? p[i] : 0.0f;
  }
}

template <bool kVector>
__device__ __forceinline__ void store_floats(float* p, const float (&f)[kChunk], int valid) {
  if constexpr (kVector) {
    reinterpret_cast<float4*>(p)[0] = make_float4(f[0], f[1], f[2], f[3]);
    reinterpret_cast<float4*>(p)[1] = make_float4(f[4], f[5], f[6], f[7]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < valid) p[i] = f[i];
    }
  }
}

}  // namespace slimexx::kernels::rows
