// d[i, j] = sum over l of a[i, l] b[j, l], for matrices whose sizes, strides or alignment the
// tensor-core kernels do not support. Every element is one fp32 chain of fused multiply-adds over
// ascending l, independent of the other sizes.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

struct StridedMatrix {
  const __nv_bfloat16* data;
  int64_t row_step;    // elements from i to i + 1
  int64_t depth_step;  // elements from l to l + 1
};

struct StridedProduct {
  StridedMatrix a, b;
  void* d;                    // [rows, columns], f32 or bf16
  const __nv_bfloat16* bias;  // [columns], or null
  int64_t rows, columns, depth;
  int64_t d_stride;
  bool d_is_f32;
  bool accumulate;  // d += instead of d =
};

constexpr int kStridedTile = 64;   // a block computes 64 x 64 outputs
constexpr int kStridedDepth = 16;  // terms staged in shared memory at a time

// Transposed: [term][row], padded so that the writes of a warp have no bank conflicts.
using StridedStage = float[kStridedDepth][kStridedTile + 1];

// Neighbouring threads load along the dimension that is contiguous in memory.
__device__ __forceinline__ void stage_strided(const StridedMatrix& m, int64_t rows, int64_t depth,
                                              int64_t first_row, int64_t first_term,
                                              StridedStage& stage) {
  const bool along_depth = m.depth_step == 1;
  for (int i = threadIdx.x; i < kStridedTile * kStridedDepth; i += blockDim.x) {
    const int row = along_depth ? i / kStridedDepth : i % kStridedTile;
    const int term = along_depth ? i % kStridedDepth : i / kStridedTile;
    const bool inside = first_row + row < rows && first_term + term < depth;
    const int64_t at = (first_row + row) * m.row_step + (first_term + term) * m.depth_step;
    stage[term][row] = inside ? __bfloat162float(m.data[at]) : 0.0f;
  }
}

// 256 threads; each computes 4 x 4 elements, 16 apart.
static __global__ void __launch_bounds__(256) multiply_strided(const StridedProduct p) {
  __shared__ StridedStage a, b;
  const int64_t column_tiles = (p.columns + kStridedTile - 1) / kStridedTile;
  const int64_t row = blockIdx.x / column_tiles * kStridedTile;
  const int64_t column = blockIdx.x % column_tiles * kStridedTile;
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;
  float sum[4][4] = {};
  for (int64_t first = 0; first < p.depth; first += kStridedDepth) {
    stage_strided(p.a, p.rows, p.depth, row, first, a);
    stage_strided(p.b, p.columns, p.depth, column, first, b);
    __syncthreads();
    const int terms = static_cast<int>(min(int64_t{kStridedDepth}, p.depth - first));
    for (int term = 0; term < terms; ++term) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& s = sum[i / 4][i % 4];
        s = __fmaf_rn(a[term][y + 16 * (i / 4)], b[term][x + 16 * (i % 4)], s);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int64_t r = row + y + 16 * (i / 4), c = column + x + 16 * (i % 4);
    if (r >= p.rows || c >= p.columns) continue;
    float value = sum[i / 4][i % 4];
    if (p.bias != nullptr) value += __bfloat162float(p.bias[c]);
    const int64_t at = r * p.d_stride + c;
    if (p.d_is_f32) {
      float* d = static_cast<float*>(p.d) + at;
      *d = p.accumulate ? *d + value : value;
    } else {
      __nv_bfloat16* d = static_cast<__nv_bfloat16*>(p.d) + at;
      *d = __float2bfloat16_rn(p.accumulate ? __bfloat162float(*d) + value : value);
    }
  }
}

inline cudaError_t launch_strided_product(const StridedProduct& p, cudaStream_t stream) {
  const int64_t tiles =
      (p.rows + kStridedTile - 1) / kStridedTile * ((p.columns + kStridedTile - 1) / kStridedTile);
  if (tiles > INT32_MAX) return cudaErrorInvalidValue;
  multiply_strided<<<static_cast<unsigned>(tiles), 256, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels
