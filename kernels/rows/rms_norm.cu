// RMSNorm, alone or after the addition of a branch. One thread block per row; the row stays in
// registers for the sum and the scaling.
#include "kernels/rows/norm_parts.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

struct NormArgs {
  Bf16* y;
  const Bf16 *x, *w;
  int64_t y_stride, x_stride;
  int width;
  float inverse_width, eps;
};

template <int kChunks, bool kVector>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_kernel(const NormArgs a) {
  enter_layer_kernel();
  __shared__ float shared[1][kMaxWarps];
  const int64_t row = blockIdx.x;
  const auto x = load_row<kChunks, kVector>(a.x + row * a.x_stride, a.width);
  const auto w = load_row<kChunks, kVector>(a.w, a.width);
  float sum[1] = {sum_of_squares(x)};
  sum_over_block(sum, shared);
  const float r = inverse_rms(sum[0], a.inverse_width, a.eps);
  store_normalised<kChunks, kVector>(a.y + row * a.y_stride, x, w, r, a.width);
}

struct AddNormArgs {
  Bf16 *y, *x_sum;
  const Bf16 *x, *branch, *branch_norm, *w;
  int width;
  float inverse_width, eps;
};

template <int kChunks, bool kVector, bool kNorm>
__global__ void __launch_bounds__(kMaxThreads) add_rms_norm_kernel(const AddNormArgs a) {
  enter_layer_kernel();
  __shared__ float shared[2][1][kMaxWarps];
  const int64_t row = int64_t{blockIdx.x} * a.width;
  auto x = load_row<kChunks, kVector>(a.x + row, a.width);
  const auto branch = load_row<kChunks, kVector>(a.branch + row, a.width);
  RowPart<kChunks> branch_norm{}, w{};
  if constexpr (kNorm) branch_norm = load_row<kChunks, kVector>(a.branch_norm, a.width);
  if (a.y != nullptr) w = load_row<kChunks, kVector>(a.w, a.width);
  float r = 0.0f;
  if constexpr (kNorm) {
    float sum[1] = {sum_of_squares(branch)};
    sum_over_block(sum, shared[0]);
    r = inverse_rms(sum[0], a.inverse_width, a.eps);
  }
  add_branch<kChunks, kNorm>(x, branch, branch_norm, r);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin < a.width) store_chunk<kVector>(a.x_sum + row + begin, x.chunk[j], a.width - begin);
  }
  if (a.y == nullptr) return;
  float sum[1] = {sum_of_squares(x)};
  sum_over_block(sum, shared[1]);
  store_normalised<kChunks, kVector>(a.y + row, x, w, inverse_rms(sum[0], a.inverse_width, a.eps),
                                     a.width);
}

template <int kChunks, bool kVector>
struct RmsNorm {
  static auto* get() { return rms_norm_kernel<kChunks, kVector>; }
};
template <int kChunks, bool kVector>
struct AddRmsNorm {
  static auto* get() { return add_rms_norm_kernel<kChunks, kVector, false>; }
};
template <int kChunks, bool kVector>
struct AddNormedRmsNorm {
  static auto* get() { return add_rms_norm_kernel<kChunks, kVector, true>; }
};

bool is_served(int64_t rows, int64_t width) {
  return rows >= 0 && rows <= INT_MAX && width > 0 && width <= kMaxRowWidth;
}

}  // namespace

cudaError_t rms_norm_forward(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                             const void* w, int64_t rows, int64_t width, float eps,
                             cudaStream_t stream) {
  if (!is_served(rows, width)) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const bool vector = width % kChunk == 0 && has_aligned_rows(y, y_stride) &&
                      has_aligned_rows(x, x_stride) && has_aligned_rows(w);
  const NormArgs args{static_cast<Bf16*>(y),
                      static_cast<const Bf16*>(x),
                      static_cast<const Bf16*>(w),
                      y_stride,
                      x_stride,
                      static_cast<int>(width),
                      1.0f / static_cast<float>(width),
                      eps};
  return launch_by_layout<RmsNorm>(choose_row_layout(width), vector, 0, grid_of(rows), stream,
                                   args);
}

cudaError_t add_rms_norm_forward(void* y, void* x_sum, const void* x, const void* branch,
                                 const void* branch_norm, const void* w, int64_t rows,
                                 int64_t width, float eps, cudaStream_t stream) {
  if (!is_served(rows, width) || (y == nullptr) != (w == nullptr)) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const bool vector = width % kChunk == 0 && has_aligned_rows(y) && has_aligned_rows(x_sum) &&
                      has_aligned_rows(x) && has_aligned_rows(branch) &&
                      has_aligned_rows(branch_norm) && has_aligned_rows(w);
  const AddNormArgs args{static_cast<Bf16*>(y),
                         static_cast<Bf16*>(x_sum),
                         static_cast<const Bf16*>(x),
                         static_cast<const Bf16*>(branch),
                         static_cast<const Bf16*>(branch_norm),
                         static_cast<const Bf16*>(w),
                         static_cast<int>(width),
                         1.0f / static_cast<float>(width),
                         eps};
  const RowLayout layout = choose_row_layout(width);
  if (branch_norm != nullptr) {
    return launch_by_layout<AddNormedRmsNorm>(layout, vector, 0, grid_of(rows), stream, args);
  }
  return launch_by_layout<AddRmsNorm>(layout, vector, 0, grid_of(rows), stream, args);
}

}  // namespace slimexx::kernels
