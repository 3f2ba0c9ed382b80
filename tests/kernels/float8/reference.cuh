// Reference kernels for FP8: the product by the stated chain on the smallest wgmma, the product in
// double, and random operands.
#pragma once
#include <cuda_bf16.h>

#include "kernels/common/stmatrix.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma_f8.cuh"
#include "kernels/float8/convert.cuh"
#include "slimexx/kernels/float8.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {

// Copies rows of 128 bytes to a tile with the 128-byte swizzle; rows from `valid` on are zeros.
__device__ inline void stage_f8_rows(uint8_t* tile, const uint8_t* from, int rows, int64_t valid,
                                     int64_t stride) {
  for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
    const int row = i / 8, chunk = i % 8;
    *reinterpret_cast<uint4*>(tile + swizzled_offset(row, chunk)) =
        row < valid ? *reinterpret_cast<const uint4*>(from + row * stride + chunk * 16)
                    : make_uint4(0, 0, 0, 0);
  }
}

// One warpgroup computes 64 rows x 8 columns of y. y_f32 receives the sums, y their rounding.
static __global__ void __launch_bounds__(128)
    multiply_f8_in_order(const Fp8GemmArgs a, __nv_bfloat16* y, float* y_f32) {
  __shared__ __align__(1024) uint8_t tiles[(64 + 8) * 128];
  const int64_t row = int64_t{blockIdx.y} * 64, column = int64_t{blockIdx.x} * 8;
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16 + lane / 4;
  const int64_t w_stride = a.w_stride == 0 ? a.k : a.w_stride;
  const int64_t units = a.w_scale_stride == 0 ? a.k / 128 : a.w_scale_stride;
  const int64_t x_scales = a.x_scale_stride == 0 ? fp8_scale_stride(a.m) : a.x_scale_stride;
  float acc[4] = {0, 0, 0, 0}, t[4] = {0, 0, 0, 0};
  for (int64_t block = 0; block < a.k / 128; ++block) {
    __syncthreads();
    stage_f8_rows(tiles, static_cast<const uint8_t*>(a.x) + row * a.k + block * 128, 64, a.m - row,
                  a.k);
    stage_f8_rows(tiles + 64 * 128,
                  static_cast<const uint8_t*>(a.w) + column * w_stride + block * 128, 8, 8,
                  w_stride);
    fence_shared_for_async();
    __syncthreads();
    pin_registers(t);
    wgmma_fence();
    const uint64_t rows = describe_swizzled_tile(tiles);
    const uint64_t columns = describe_swizzled_tile(tiles + 64 * 128);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      wgmma_f8_k32(t, rows + step * kDescriptorStepK16, columns + step * kDescriptorStepK16,
                   step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin_registers(t);
    const float w_scale = a.w_scales[column / 64 * units + block];
    for (int i = 0; i < 4; ++i) {
      const int64_t r = row + own + 8 * (i / 2);
      const float x_scale = r < a.m ? a.x_scales[block * x_scales + r] : 0.0f;
      acc[i] = __fmaf_rn(t[i], __fmul_rn(x_scale, w_scale), acc[i]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t r = row + own + 8 * (i / 2), c = column + 2 * (lane % 4) + i % 2;
    if (r >= a.m) continue;
    const auto* bias = static_cast<const __nv_bfloat16*>(a.bias);
    const float sum = bias == nullptr ? acc[i] : acc[i] + __bfloat162float(bias[c]);
    y[r * a.n + c] = __float2bfloat16_rn(sum);
    y_f32[r * a.n + c] = sum;
  }
}

// Adds to sums[0] the squared distance of y from the product in double, to sums[1] its square.
static __global__ void measure_f8_distance(const Fp8GemmArgs a, const float* y, double* sums) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.m * a.n) return;
  const int64_t row = i / a.n, column = i % a.n;
  const auto* x = static_cast<const uint8_t*>(a.x) + row * a.k;
  const auto* w = static_cast<const uint8_t*>(a.w) + column * (a.w_stride == 0 ? a.k : a.w_stride);
  const int64_t units = a.w_scale_stride == 0 ? a.k / 128 : a.w_scale_stride;
  const int64_t x_scales = a.x_scale_stride == 0 ? fp8_scale_stride(a.m) : a.x_scale_stride;
  const auto* bias = static_cast<const __nv_bfloat16*>(a.bias);
  double sum = bias == nullptr ? 0.0 : static_cast<double>(__bfloat162float(bias[column]));
  for (int64_t j = 0; j < a.k; ++j) {
    const double scale = static_cast<double>(a.x_scales[j / 128 * x_scales + row]) *
                         static_cast<double>(a.w_scales[column / 64 * units + j / 128]);
    sum += scale * static_cast<double>(widen_f8(x[j]).x) * static_cast<double>(widen_f8(w[j]).x);
  }
  const double away = static_cast<double>(y[i]) - sum;
  atomicAdd(sums, away * away);
  atomicAdd(sums + 1, sum * sum);
}

enum class F8Values {
  kNormal,    // as quantised normal numbers
  kPatterns,  // all bytes except NaN
  kWide,      // random exponents, a quarter zeros of either sign
  kOutliers,  // small, and every 64th the largest value
};
inline const char* name_values(F8Values values) {
  constexpr const char* kNames[] = {"normal", "patterns", "wide", "outliers"};
  return kNames[static_cast<int>(values)];
}

__device__ inline float draw_f8_normal(uint64_t seed, int64_t i) {
  const uint64_t at = seed * 0x9e3779b97f4a7c15ull + 2 * static_cast<uint64_t>(i);
  const float u = (static_cast<float>(mix_bits(at) >> 8) + 1) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * static_cast<float>(mix_bits(at + 1)) * 0x1p-32f);
}

static __global__ void fill_f8(uint8_t* out, int64_t count, F8Values values, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t bits = mix_bits(~seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(i));
    const float normal = draw_f8_normal(seed, i);
    float x = normal * 100;
    if (values == F8Values::kWide) {
      x = bits % 4 == 0 ? copysignf(0, normal)
                        : ldexpf(normal, static_cast<int>(bits / 4 % 14) - 6);
    }
    if (values == F8Values::kOutliers) x = bits % 64 == 0 ? copysignf(448, normal) : normal * 0.02f;
    out[i] = static_cast<uint8_t>(pack_f8(x, 0));
    if (values != F8Values::kPatterns) continue;
    out[i] = static_cast<uint8_t>((bits & 127) == 127 ? bits & 0x80 : bits & 0xff);
  }
}

// Positive scales with random bits, in a range of 2^`exponents` around 2^-9.
static __global__ void fill_f8_scales(float* out, int64_t count, int exponents, uint64_t seed) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint64_t at = seed * 0xd1b54a32d192ed03ull + 2 * static_cast<uint64_t>(i);
  const float mantissa = 1.0f + static_cast<float>(mix_bits(at) >> 9) * 0x1p-23f;
  const int exponent = static_cast<int>(mix_bits(at + 1) % exponents) - exponents / 2 - 9;
  out[i] = ldexpf(mantissa, exponent);
}

}  // namespace slimexx::kernels::testing
