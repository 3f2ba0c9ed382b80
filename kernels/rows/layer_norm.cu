// LayerNorm with a bias. One thread block per row; the row stays in registers for the mean, the
// variance and the scaling.
#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

struct LayerNormArgs {
  Bf16* y;
  const Bf16 *x, *w, *b;
  int64_t y_stride, x_stride;
  int width;
  float inverse_width, eps;
};

// The row minus its mean; elements beyond the width are 0, so that they add nothing to the
// variance.
template <int kChunks>
__device__ __forceinline__ void center(float (&deviation)[kChunks][kChunk],
                                       const RowPart<kChunks>& x, float mean, int width) {
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    unpack(deviation[j], x.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      deviation[j][i] = chunk_begin(j) + i < width ? __fadd_rn(deviation[j][i], -mean) : 0.0f;
    }
  }
}

template <int kChunks, bool kVector>
__global__ void __launch_bounds__(kMaxThreads) layer_norm_kernel(const LayerNormArgs a) {
  enter_kernel();
  __shared__ float shared[2][1][kMaxWarps];
  const int64_t row = blockIdx.x;
  const auto x = load_row<kChunks, kVector>(a.x + row * a.x_stride, a.width);
  const auto w = load_row<kChunks, kVector>(a.w, a.width);
  const auto b = load_row<kChunks, kVector>(a.b, a.width);
  float chain[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    float value[kChunk];
    unpack(value, x.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chain[i % 4] = __fadd_rn(chain[i % 4], value[i]);
  }
  float sum[1] = {join_chains(chain)};
  sum_over_block(sum, shared[0]);
  float deviation[kChunks][kChunk];
  center(deviation, x, __fmul_rn(sum[0], a.inverse_width), a.width);
#pragma unroll
  for (float& c : chain) c = 0.0f;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      chain[i % 4] = __fmaf_rn(deviation[j][i], deviation[j][i], chain[i % 4]);
    }
  }
  sum[0] = join_chains(chain);
  sum_over_block(sum, shared[1]);
  const float r = inverse_rms(sum[0], a.inverse_width, a.eps);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin >= a.width) break;
    float weight[kChunk], bias[kChunk];
    unpack(weight, w.chunk[j]);
    unpack(bias, b.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      weight[i] = __fadd_rn(__fmul_rn(weight[i], __fmul_rn(deviation[j][i], r)), bias[i]);
    }
    store_chunk<kVector>(a.y + row * a.y_stride + begin, pack(weight), a.width - begin);
  }
}

template <int kChunks, bool kVector>
struct LayerNorm {
  static auto* get() { return layer_norm_kernel<kChunks, kVector>; }
};

}  // namespace

cudaError_t layer_norm_forward(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                               const void* w, const void* b, int64_t rows, int64_t width, float eps,
                               cudaStream_t stream) {
  if (rows < 0 || rows > INT_MAX || width <= 0 || width > kMaxRowWidth) {
    return cudaErrorInvalidValue;
  }
  if (rows == 0) return cudaSuccess;
  const bool vector = width % kChunk == 0 && has_aligned_rows(y, y_stride) &&
                      has_aligned_rows(x, x_stride) && has_aligned_rows(w) && has_aligned_rows(b);
  const LayerNormArgs args{static_cast<Bf16*>(y),
                           static_cast<const Bf16*>(x),
                           static_cast<const Bf16*>(w),
                           static_cast<const Bf16*>(b),
                           y_stride,
                           x_stride,
                           static_cast<int>(width),
                           1.0f / static_cast<float>(width),
                           eps};
  return launch_by_layout<LayerNorm>(choose_row_layout(width), vector, 0, grid_of(rows), stream,
                                     args);
}

}  // namespace slimexx::kernels
