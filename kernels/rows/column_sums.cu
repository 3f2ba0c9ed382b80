// Bias gradients. A block of eight warps sums one part of the rows for 256 columns: each warp adds
// every eighth row in ascending order, then the warps' sums are added in order.
#include "kernels/rows/launch.cuh"
#include "kernels/rows/partial_sums.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kWarps = 8;
constexpr int kTileColumns = 32 * kChunk;
constexpr int64_t kRowsPerPart = 64;
constexpr int64_t kMaxParts = 256;

struct ColumnArgs {
  float* partial;  // [parts, columns]
  const Bf16* dy;
  int64_t stride, rows, parts, columns;
};

template <bool kVector>
__global__ void __launch_bounds__(kWarps * 32) column_sums_kernel(const ColumnArgs a) {
  enter_kernel();
  __shared__ float shared[kWarps][kTileColumns];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t part = blockIdx.y;
  const int64_t tile = int64_t{blockIdx.x} * kTileColumns, column = tile + lane * kChunk;
  const auto valid = static_cast<int>(min(a.columns - column, int64_t{kChunk}));
  float sum[kChunk] = {};
  if (valid > 0) {
    const int64_t end = part_begin(part + 1, a.parts, a.rows);
#pragma unroll 8
    for (int64_t row = part_begin(part, a.parts, a.rows) + warp; row < end; row += kWarps) {
      float x[kChunk];
      unpack(x, load_chunk<kVector>(a.dy + row * a.stride + column, valid));
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum[i] = __fadd_rn(sum[i], x[i]);
    }
  }
  store_floats<true>(&shared[warp][lane * kChunk], sum, kChunk);
  __syncthreads();
  const int64_t own = tile + threadIdx.x;
  if (own >= a.columns) return;
  float total = shared[0][threadIdx.x];
  for (int w = 1; w < kWarps; ++w) total = __fadd_rn(total, shared[w][threadIdx.x]);
  a.partial[part * a.columns + own] = total;
}

int64_t count_parts(int64_t rows) {
  const int64_t parts = divide_up(rows, kRowsPerPart);
  return parts < kMaxParts ? parts : kMaxParts;
}

}  // namespace

size_t column_sums_workspace(int64_t rows, int64_t n) {
  return static_cast<size_t>(count_parts(rows) * n) * sizeof(float);
}

cudaError_t column_sums(float* dbias, const void* dy, int64_t dy_stride, int64_t rows, int64_t n,
                        void* workspace, cudaStream_t stream) {
  if (rows < 0 || n < 0) return cudaErrorInvalidValue;
  if (rows == 0 || n == 0) return cudaSuccess;
  const ColumnArgs args{static_cast<float*>(workspace),
                        static_cast<const Bf16*>(dy),
                        dy_stride,
                        rows,
                        count_parts(rows),
                        n};
  const bool vector = n % kChunk == 0 && has_aligned_rows(dy, dy_stride);
  const dim3 grid(static_cast<unsigned>(divide_up(n, kTileColumns)),
                  static_cast<unsigned>(args.parts));
  const cudaError_t error =
      vector ? launch(column_sums_kernel<true>, grid, kWarps * 32, stream, args)
             : launch(column_sums_kernel<false>, grid, kWarps * 32, stream, args);
  if (error != cudaSuccess) return error;
  return add_partial_sums({dbias, args.partial, args.parts, n}, stream);
}

}  // namespace slimexx::kernels
