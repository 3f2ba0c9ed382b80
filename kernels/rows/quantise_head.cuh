// Quantises heads of keys and values in registers (head_lanes.cuh), for an FP8 cache: one scale per
// token and head by tensor::f8_key_scale.
#pragma once
#include "kernels/common/f8_pairs.cuh"
#include "kernels/float8/convert.cuh"
#include "kernels/rows/head_lanes.cuh"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels::rows {

// A lane's elements as e4m3, and the scale of its head as bf16.
struct F8Part {
  uint2 low, high;
  uint32_t scale;
};

// The bits of the largest magnitude. Patterns of magnitudes are ordered as the magnitudes are, and
// NaN is above infinity.
__device__ __forceinline__ uint32_t largest_magnitude(const HeadPart& part) {
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const uint32_t pair = i < kChunk / 2 ? part.low.pair[i] : part.high.pair[i - kChunk / 2];
    most = max(most, max(pair << 16 & 0x7FFF0000, pair & 0x7FFF0000));
  }
  return most;
}

__device__ __forceinline__ uint2 quantise_chunk(const Chunk& chunk, float factor) {
  uint32_t pairs[kChunk / 2];
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    pairs[i] = pack_f8(__fmul_rn(widen_low(chunk.pair[i]), factor),
                       __fmul_rn(widen_high(chunk.pair[i]), factor));
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

__device__ __forceinline__ Chunk dequantise_chunk(uint2 chunk, uint32_t scales) {
  const uint2 low = dequantise_quad(chunk.x, scales), high = dequantise_quad(chunk.y, scales);
  return {{low.x, low.y, high.x, high.y}};
}

// All lanes of the warp must call. Elements that do not exist are zeros.
template <int kLanes>
__device__ __forceinline__ F8Part quantise_part(const HeadPart& part) {
  uint32_t most = largest_magnitude(part);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
  }
  const tensor::F8RowScale scale = tensor::f8_key_scale(__uint_as_float(most));
  return {quantise_chunk(part.low, scale.factor), quantise_chunk(part.high, scale.factor),
          __float_as_uint(scale.scale) >> 16};
}

__device__ __forceinline__ HeadPart dequantise_part(const F8Part& part) {
  const uint32_t scales = repeat_scale(part.scale);
  return {dequantise_chunk(part.low, scales), dequantise_chunk(part.high, scales)};
}

template <bool kVector>
__device__ __forceinline__ void store_bytes(uint8_t* p, uint2 chunk, int valid) {
  if constexpr (kVector) {
    *reinterpret_cast<uint2*>(p) = chunk;
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < valid) p[i] = static_cast<uint8_t>((i < 4 ? chunk.x : chunk.y) >> i % 4 * 8);
    }
  }
}

template <HeadMode kMode>
__device__ __forceinline__ void store_part(uint8_t* head, const F8Part& part, const LanePlace& p,
                                           int dim) {
  constexpr bool kVector = kMode != kOneByOne;
  if (p.low >= dim) return;
  store_bytes<kVector>(head + p.low, part.low, dim - p.low);
  store_bytes<kVector>(head + p.high, part.high, dim - p.high);
}

}  // namespace slimexx::kernels::rows
