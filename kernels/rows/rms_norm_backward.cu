// Gradient of RMSNorm. With r = 1 / rms(x), g = dy w and m = mean(g x r):
//   dx (+)= r (g - x r m),  dw += sum over rows of dy x r.
// A thread block walks one part of the rows; each thread keeps its columns' share of dw, and loads
// the next row while it works on this one.
#include "kernels/rows/partial_sums.cuh"
#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int64_t kMaxParts = 264;

struct BackwardArgs {
  Bf16* dx;
  float* partial;  // [parts, width]
  const Bf16 *dy, *x, *w;
  int64_t rows;
  int width;
  float eps;
};

template <int kChunks>
struct Row {
  RowPart<kChunks> x, dy, dx;
};

template <int kChunks, bool kVector, bool kAccumulate>
__device__ __forceinline__ Row<kChunks> load(const BackwardArgs& a, int64_t row) {
  Row<kChunks> r;
  r.x = load_row<kChunks, kVector>(a.x + row * a.width, a.width);
  r.dy = load_row<kChunks, kVector>(a.dy + row * a.width, a.width);
  if constexpr (kAccumulate) r.dx = load_row<kChunks, kVector>(a.dx + row * a.width, a.width);
  return r;
}

// sum x^2 and sum dy w x of this thread's elements, by the tree of row_sum.cuh.
template <int kChunks>
__device__ __forceinline__ void sum_products(float (&sum)[2], const Row<kChunks>& row,
                                             const RowPart<kChunks>& w) {
  sum[0] = sum_of_squares(row.x);
  float chain[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    float x[kChunk], dy[kChunk], weight[kChunk];
    unpack(x, row.x.chunk[j]);
    unpack(dy, row.dy.chunk[j]);
    unpack(weight, w.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      chain[i % 4] = __fmaf_rn(__fmul_rn(dy[i], weight[i]), x[i], chain[i % 4]);
    }
  }
  sum[1] = join_chains(chain);
}

template <int kChunks, bool kVector, bool kAccumulate>
__device__ __forceinline__ void finish_row(const BackwardArgs& a, int64_t row_index,
                                           const Row<kChunks>& row, const RowPart<kChunks>& w,
                                           const float (&sum)[2], float (&dw)[kChunks][kChunk]) {
  const auto width = static_cast<float>(a.width);
  const float r = inverse_rms(sum[0], width, a.eps);
  const float mean = __fdiv_rn(__fmul_rn(sum[1], r), width);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin >= a.width) break;
    float x[kChunk], dy[kChunk], weight[kChunk], dx[kChunk];
    unpack(x, row.x.chunk[j]);
    unpack(dy, row.dy.chunk[j]);
    unpack(weight, w.chunk[j]);
    if constexpr (kAccumulate) unpack(dx, row.dx.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float normed = __fmul_rn(x[i], r);
      dw[j][i] = __fmaf_rn(dy[i], normed, dw[j][i]);
      const float d = __fmul_rn(r, __fmaf_rn(-normed, mean, __fmul_rn(dy[i], weight[i])));
      dx[i] = kAccumulate ? __fadd_rn(dx[i], d) : d;
    }
    store_chunk<kVector>(a.dx + row_index * a.width + begin, pack(dx), a.width - begin);
  }
}

template <int kChunks, bool kVector, bool kAccumulate>
__global__ void __launch_bounds__(kMaxThreads, kChunks <= 2 ? 2 : 1)
    rms_norm_backward_kernel(const BackwardArgs a) {
  enter_kernel();
  constexpr bool kPrefetch = kChunks <= 4;
  __shared__ float shared[2][2][kMaxWarps];
  const int64_t end = part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.rows);
  int64_t row = part_begin(blockIdx.x, gridDim.x, a.rows);
  float dw[kChunks][kChunk] = {};
  const auto w = load_row<kChunks, kVector>(a.w, a.width);
  Row<kChunks> next{};
  if constexpr (kPrefetch) next = load<kChunks, kVector, kAccumulate>(a, row);
  for (int turn = 0; row < end; ++row, turn ^= 1) {
    Row<kChunks> now;
    if constexpr (kPrefetch) {
      now = next;
      if (row + 1 < end) next = load<kChunks, kVector, kAccumulate>(a, row + 1);
    } else {
      now = load<kChunks, kVector, kAccumulate>(a, row);
    }
    float sum[2];
    sum_products(sum, now, w);
    sum_over_block(sum, shared[turn]);
    finish_row<kChunks, kVector, kAccumulate>(a, row, now, w, sum, dw);
  }
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    float* out = a.partial + int64_t{blockIdx.x} * a.width + begin;
    if (begin < a.width) store_floats<kVector>(out, dw[j], a.width - begin);
  }
}

template <int kChunks, bool kVector>
struct Backward {
  static auto* get() { return rms_norm_backward_kernel<kChunks, kVector, false>; }
};
template <int kChunks, bool kVector>
struct AccumulatingBackward {
  static auto* get() { return rms_norm_backward_kernel<kChunks, kVector, true>; }
};

int64_t count_parts(int64_t rows) { return rows < kMaxParts ? rows : kMaxParts; }

}  // namespace

size_t rms_norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(count_parts(rows) * width) * sizeof(float);
}

cudaError_t rms_norm_backward(void* dx, float* dw, const void* dy, const void* x, const void* w,
                              int64_t rows, int64_t width, float eps, bool accumulate,
                              void* workspace, cudaStream_t stream) {
  if (rows < 0 || width <= 0 || width > kMaxRowWidth) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const bool vector = width % kChunk == 0 && is_aligned(dx) && is_aligned(dy) && is_aligned(x) &&
                      is_aligned(w) && is_aligned(workspace);
  const BackwardArgs args{static_cast<Bf16*>(dx),       static_cast<float*>(workspace),
                          static_cast<const Bf16*>(dy), static_cast<const Bf16*>(x),
                          static_cast<const Bf16*>(w),  rows,
                          static_cast<int>(width),      eps};
  const int64_t parts = count_parts(rows);
  const RowLayout layout = choose_row_layout(width);
  const cudaError_t error =
      accumulate
          ? launch_by_layout<AccumulatingBackward>(layout, vector, grid_of(parts), stream, args)
          : launch_by_layout<Backward>(layout, vector, grid_of(parts), stream, args);
  if (error != cudaSuccess) return error;
  return add_partial_sums({dw, args.partial, parts, width}, stream);
}

}  // namespace slimexx::kernels
