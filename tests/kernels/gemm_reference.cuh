// Reference kernels for the GEMM variants: the product with the contract's order of K, the product
// in double, and comparison by bits.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "tests/kernels/device_array.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {

// Elements k and k + 1 of row `row`, zero outside the matrix. k and `columns` are even.
__device__ inline uint32_t load_pair(const __nv_bfloat16* p, int64_t rows, int64_t columns,
                                     int64_t row, int64_t k) {
  if (row >= rows || k >= columns) return 0;
  return *reinterpret_cast<const uint32_t*>(p + row * columns + k);
}

// One warp computes 16 x 8 outputs by mma.sync m16n8k16 in ascending k: the same chain as wgmma.
// y_f32 receives the sums, y their rounding; either may be null.
__global__ void multiply_in_order(const __nv_bfloat16* x, const __nv_bfloat16* w,
                                  const __nv_bfloat16* bias, __nv_bfloat16* y, float* y_f32,
                                  int64_t m, int64_t n, int64_t k) {
  const int lane = threadIdx.x % 32;
  const int64_t tile = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  const int64_t column_tiles = (n + 7) / 8;
  const int64_t row = tile / column_tiles * 16 + lane / 4;
  const int64_t column = tile % column_tiles * 8;
  if (tile / column_tiles * 16 >= m) return;
  float d[4] = {0, 0, 0, 0};
  for (int64_t step = 0; step < k; step += 16) {
    const int64_t at = step + 2 * (lane % 4);
    const uint32_t a0 = load_pair(x, m, k, row, at), a1 = load_pair(x, m, k, row + 8, at);
    const uint32_t a2 = load_pair(x, m, k, row, at + 8), a3 = load_pair(x, m, k, row + 8, at + 8);
    const uint32_t b0 = load_pair(w, n, k, column + lane / 4, at);
    const uint32_t b1 = load_pair(w, n, k, column + lane / 4, at + 8);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t r = row + 8 * (i / 2), c = column + 2 * (lane % 4) + i % 2;
    if (r >= m || c >= n) continue;
    const float sum = bias == nullptr ? d[i] : d[i] + __bfloat162float(bias[c]);
    if (y != nullptr) y[r * n + c] = __float2bfloat16_rn(sum);
    if (y_f32 != nullptr) y_f32[r * n + c] = sum;
  }
}

// One thread per element: fused multiply-adds in ascending k.
__global__ void multiply_serially(const __nv_bfloat16* x, const __nv_bfloat16* w,
                                  const __nv_bfloat16* bias, __nv_bfloat16* y, float* y_f32,
                                  int64_t m, int64_t n, int64_t k) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float sum = 0;
  for (int64_t j = 0; j < k; ++j) {
    sum = fmaf(__bfloat162float(x[i / n * k + j]), __bfloat162float(w[i % n * k + j]), sum);
  }
  sum += __bfloat162float(bias[i % n]);
  y[i] = __float2bfloat16_rn(sum);
  y_f32[i] = sum;
}

// Adds to sums[0] the squared distance of y from the product in double, to sums[1] its square.
__global__ void measure_distance(const __nv_bfloat16* x, const __nv_bfloat16* w,
                                 const __nv_bfloat16* bias, const __nv_bfloat16* y, int64_t m,
                                 int64_t n, int64_t k, double* sums) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  double sum = bias == nullptr ? 0.0 : static_cast<double>(__bfloat162float(bias[i % n]));
  for (int64_t j = 0; j < k; ++j) {
    sum += static_cast<double>(__bfloat162float(x[i / n * k + j])) *
           static_cast<double>(__bfloat162float(w[i % n * k + j]));
  }
  const double away = static_cast<double>(__bfloat162float(y[i])) - sum;
  atomicAdd(sums, away * away);
  atomicAdd(sums + 1, sum * sum);
}

struct Difference {
  unsigned long long count;
  unsigned long long first;  // index of the first differing element
};

// out[0] counts elements of the m x n product y (row stride `stride`) whose bits differ from
// `expected` (row stride n). out[1] counts the other elements, up to `total`, with a zero bit:
// their poison of ones was overwritten.
template <class Bits>
__global__ void compare_product(const Bits* y, int64_t stride, int64_t total, const Bits* expected,
                                int64_t m, int64_t n, Difference* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
    const int64_t row = i / stride, column = i % stride;
    const bool inside = row < m && column < n;
    if (y[i] == (inside ? expected[row * n + column] : static_cast<Bits>(~Bits{0}))) continue;
    Difference* found = out + (inside ? 0 : 1);
    atomicAdd(&found->count, 1ull);
    atomicMin(&found->first, static_cast<unsigned long long>(i));
  }
}

// The difference of two matrices [m, n].
inline Difference compare_rows(const DeviceArray<__nv_bfloat16>& y,
                               const DeviceArray<__nv_bfloat16>& expected, int64_t m, int64_t n) {
  DeviceArray<Difference> found(2);
  found.set_bytes(0);
  compare_product<<<256, 256>>>(reinterpret_cast<const uint16_t*>(y.data()), n, m * n,
                                reinterpret_cast<const uint16_t*>(expected.data()), m, n,
                                found.data());
  SLX_CUDA(cudaDeviceSynchronize());
  return found.get(0);
}

}  // namespace slimexx::kernels::testing
