// FP8 pages for the checks and benchmarks of attention: quantises heads of keys or values, replaces
// them by the dequantised values, and scatters bytes and scales to pages.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "slimexx/tensor/float8.h"

namespace slimexx::kernels::testing {

// The magnitudes of the scales: all as drawn, or heads with zeros, tiny and huge values in turn.
enum class Magnitudes { kEqual, kMixed };

__device__ inline float magnify(Magnitudes kind, int64_t head) {
  if (kind == Magnitudes::kEqual) return 1.0f;
  const float factors[] = {1.0f, 0x1p-20f, 0.0f, 4.0f, 0x1p-60f, 0x1p20f, 1.0f};
  return factors[head % 7];
}

__device__ inline float decode_f8(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float magnitude = exponent == 0 ? ldexpf(static_cast<float>(mantissa), -9)
                                        : ldexpf(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

// One thread per head; `heads` counts the heads of all tokens. No value may be NaN or infinite.
static __global__ void round_through_f8(__nv_bfloat16* x, uint8_t* bytes, uint16_t* scales,
                                        int64_t heads, int head_dim, Magnitudes kind) {
  const int64_t head = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (head >= heads) return;
  x += head * head_dim;
  bytes += head * head_dim;
  float amax = 0;
  for (int i = 0; i < head_dim; ++i) {
    x[i] = __float2bfloat16_rn(__bfloat162float(x[i]) * magnify(kind, head));
    amax = fmaxf(amax, fabsf(__bfloat162float(x[i])));
  }
  const tensor::F8RowScale scale = tensor::f8_key_scale(amax);
  scales[head] = static_cast<uint16_t>(__float_as_uint(scale.scale) >> 16);
  for (int i = 0; i < head_dim; ++i) {
    bytes[i] = tensor::f32_to_f8_e4m3(__fmul_rn(__bfloat162float(x[i]), scale.factor));
    x[i] = __float2bfloat16_rn(__fmul_rn(decode_f8(bytes[i]), scale.scale));
  }
}

// One thread block per position: copies a token's heads to its slot.
static __global__ void scatter_f8(uint8_t* pages, uint16_t* page_scales, const uint8_t* rows,
                                  const uint16_t* scales, const int32_t* table, int heads,
                                  int head_dim, int page_tokens) {
  const int64_t position = blockIdx.x, page = table[position / page_tokens];
  const int64_t offset = position % page_tokens, slot = page * page_tokens + offset;
  const int width = heads * head_dim;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    pages[slot * width + i] = rows[position * width + i];
  }
  for (int h = threadIdx.x; h < heads; h += blockDim.x) {
    page_scales[(page * heads + h) * page_tokens + offset] = scales[position * heads + h];
  }
}

}  // namespace slimexx::kernels::testing
