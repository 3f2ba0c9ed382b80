// Gradient of RMSNorm. With r = 1 / rms(x), g = dy w and m = mean(g x r):
//   dx (+)= r (g - x r m),  dw += sum over rows of dy x r.
// A thread block walks one part of the rows; each thread sums dw for its columns in registers.
#include "kernels/common/device.h"
#include "kernels/rows/partial_sums.cuh"
#include "kernels/rows/row_ring.cuh"
#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int64_t kResidentWarps = 16;       // per multiprocessor, at 128 registers
constexpr int64_t kSharedBytes = 216 << 10;  // per multiprocessor, for rings
constexpr int kHeldChunks = 2;               // chunks per thread kept in registers during the sum
enum Source { kX, kDy, kDx };

struct BackwardArgs {
  Bf16* dx;
  float* partial;  // [parts, width]
  const Bf16 *dy, *x, *w;
  int64_t dx_stride, dy_stride, x_stride;
  int64_t rows;
  int width;
  float inverse_width, eps;
  RingPlan ring;
};

// This thread's part of one row.
template <int kChunks>
struct Row {
  RowPart<kChunks> x, dy, dx;
};

// Sums two values over the block; every thread receives both sums. In each warp lanes 0..15 reduce
// the first value and lanes 16..31 the second, by xor 16 .. 1; then the warps' sums are added by
// xor 8 .. 1. Callers alternate between two `shared` arrays, as for sum_over_block.
constexpr int kHalf = 16;
__device__ __forceinline__ void sum_pair_over_block(float (&v)[2], float (&shared)[2 * kHalf]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  const bool second = lane >= kHalf;
  float sum = second ? v[1] : v[0];
  sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, second ? v[0] : v[1], kHalf));
#pragma unroll
  for (int distance = kHalf / 2; distance > 0; distance /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
  }
  if (lane % kHalf == 0) shared[lane + threadIdx.x / 32] = sum;
  __syncthreads();
  sum = lane % kHalf < warps ? shared[lane] : 0.0f;
#pragma unroll
  for (int distance = kHalf / 2; distance > 0; distance /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
  }
  v[0] = __shfl_sync(0xffffffffu, sum, 0);
  v[1] = __shfl_sync(0xffffffffu, sum, kHalf);
}

// Sums of x^2 and of dy w x over this thread's elements, in the chains of row_sum.cuh.
template <int kChunks>
__device__ __forceinline__ void sum_products(float (&sum)[2], const Row<kChunks>& row,
                                             const RowPart<kChunks>& w) {
  float squares[4] = {0, 0, 0, 0}, products[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    float x[kChunk], dy[kChunk], weight[kChunk];
    unpack(x, row.x.chunk[j]);
    unpack(dy, row.dy.chunk[j]);
    unpack(weight, w.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      squares[i % 4] = __fmaf_rn(x[i], x[i], squares[i % 4]);
      products[i % 4] = __fmaf_rn(__fmul_rn(dy[i], weight[i]), x[i], products[i % 4]);
    }
  }
  sum[0] = join_chains(squares);
  sum[1] = join_chains(products);
}

template <int kChunks, bool kVector, bool kAccumulate>
__device__ __forceinline__ void finish_row(const BackwardArgs& a, Bf16* out,
                                           const Row<kChunks>& row, const RowPart<kChunks>& w,
                                           const float (&sum)[2], float (&dw)[kChunks][kChunk]) {
  const float r = inverse_rms(sum[0], a.inverse_width, a.eps);
  const float mean = __fmul_rn(__fmul_rn(sum[1], r), a.inverse_width);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
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
    if (begin < a.width) store_chunk<kVector>(out + begin, pack(dx), a.width - begin);
  }
}

// dx may be dy: a row is overwritten after it was read, and later rows are not yet overwritten.
template <int kChunks, bool kVector, bool kAccumulate>
__global__ void __launch_bounds__(kMaxThreads, kChunks <= 4 ? 2 : 1)
    rms_norm_backward_kernel(const __grid_constant__ BackwardArgs a) {
  enter_kernel();
  extern __shared__ __align__(16) char buffer[];
  __shared__ uint64_t full[kMaxStages];
  __shared__ float shared[2][2 * kHalf];
  const int64_t first = part_begin(blockIdx.x, gridDim.x, a.rows);
  const int64_t end = part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.rows);
  float dw[kChunks][kChunk] = {};
  const auto w = load_row<kChunks, kVector>(a.w, a.width);
  RowRing ring(a.ring, full, buffer, first, kVector ? end : first);
  int turn = 0;
  for (int64_t row = first; row < end; ++row, turn ^= 1) {
    if constexpr (kVector) ring.await_row();
    const auto load = [&](const Bf16* whole, int64_t stride, Source source) {
      const Bf16* own = kVector ? ring.row<Bf16>(source) : whole + row * stride;
      return load_row<kChunks, kVector>(own, a.width);
    };
    const auto load_now = [&] {
      Row<kChunks> now{load(a.x, a.x_stride, kX), load(a.dy, a.dy_stride, kDy), {}};
      if constexpr (kAccumulate) now.dx = load(a.dx, a.dx_stride, kDx);
      return now;
    };
    Row<kChunks> now = load_now();
    float sum[2];
    sum_products<kChunks>(sum, now, w);
    sum_pair_over_block(sum, shared[turn]);
    // sum_pair_over_block has a barrier after all threads' reads of this row, so the row can be
    // released. A row that is too wide for registers is read again here: then the barrier follows
    // all reads of the previous row, which is released instead.
    if constexpr (kChunks > kHeldChunks) now = load_now();
    if (kVector && (kChunks <= kHeldChunks || row > first)) ring.release_row();
    finish_row<kChunks, kVector, kAccumulate>(a, a.dx + row * a.dx_stride, now, w, sum, dw);
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

int64_t count_blocks(int64_t width) {
  const int64_t blocks = kResidentWarps / (choose_row_layout(width).threads / 32);
  return blocks < 4 ? blocks : 4;
}
int64_t count_parts(int64_t rows, int64_t width) {
  const int64_t parts = kMultiprocessors * count_blocks(width);
  return rows < parts ? rows : parts;
}

}  // namespace

size_t rms_norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(count_parts(rows, width) * width) * sizeof(float);
}

cudaError_t rms_norm_backward(void* dx, int64_t dx_stride, float* dw, const void* dy,
                              int64_t dy_stride, const void* x, int64_t x_stride, const void* w,
                              int64_t rows, int64_t width, float eps, bool accumulate,
                              void* workspace, cudaStream_t stream) {
  if (rows < 0 || width <= 0 || width > kMaxRowWidth) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const bool vector = width % kChunk == 0 && has_aligned_rows(dx, dx_stride) &&
                      has_aligned_rows(dy, dy_stride) && has_aligned_rows(x, x_stride) &&
                      has_aligned_rows(w) && has_aligned_rows(workspace);
  BackwardArgs args{static_cast<Bf16*>(dx),
                    static_cast<float*>(workspace),
                    static_cast<const Bf16*>(dy),
                    static_cast<const Bf16*>(x),
                    static_cast<const Bf16*>(w),
                    dx_stride,
                    dy_stride,
                    x_stride,
                    rows,
                    static_cast<int>(width),
                    1.0f / static_cast<float>(width),
                    eps,
                    {}};
  const RowLayout layout = choose_row_layout(width);
  int shared_bytes = 0;
  if (vector) {
    add_source(args.ring, x, 2 * x_stride, 2 * width);
    add_source(args.ring, dy, 2 * dy_stride, 2 * width);
    if (accumulate) add_source(args.ring, dx, 2 * dx_stride, 2 * width);
    shared_bytes = choose_stages(args.ring, kSharedBytes / count_blocks(width));
  }
  const int64_t parts = count_parts(rows, width);
  const cudaError_t error =
      accumulate
          ? launch_by_layout<AccumulatingBackward>(layout, vector, shared_bytes, grid_of(parts),
                                                   stream, args)
          : launch_by_layout<Backward>(layout, vector, shared_bytes, grid_of(parts), stream, args);
  if (error != cudaSuccess) return error;
  return add_partial_sums({dw, args.partial, parts, width}, stream);
}

}  // namespace slimexx::kernels
