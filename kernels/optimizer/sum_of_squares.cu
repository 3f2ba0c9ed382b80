// The sum of squares in double, in a fixed order. Each block sums one tile of one range, then one
// block adds the sums of all tiles. The elements of a tile form groups of four. Thread t adds
// groups t, t + threads, ... in four chains, one per element of a group, and joins the chains as (0
// + 1) + (2 + 3). The lanes are added by xor 16 .. 1, then the warps in ascending order.
#include <cuda_runtime.h>

#include <climits>

#include "slimexx/kernels/optimizer.h"

namespace slimexx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kGroups = 32;  // groups of four elements per thread
constexpr int64_t kTile = int64_t{kThreads} * kGroups * 4;
constexpr int kFinalThreads = 1024;

// Every thread receives the sum. May be called once per kernel: the shared array is not reused.
template <int kBlockThreads>
__device__ __forceinline__ double sum_over_block(double v) {
  __shared__ double shared[kBlockThreads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    v = __dadd_rn(v, __shfl_xor_sync(0xffffffffu, v, distance));
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  double sum = shared[0];
  for (int warp = 1; warp < kBlockThreads / 32; ++warp) sum = __dadd_rn(sum, shared[warp]);
  return sum;
}

__device__ __forceinline__ void add_square(double& chain, float x) {
  const double wide = x;
  chain = __fma_rn(wide, wide, chain);
}

// Returns the last range that starts at or before `tile`.
__device__ __forceinline__ SquareRange find_range(const SquareRange* ranges, int count,
                                                  int64_t tile) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (ranges[middle].first_tile <= tile ? low : high) = middle;
  }
  return ranges[low];
}

__global__ void __launch_bounds__(kThreads)
    square_tiles_kernel(double* tile_sums, const float* x, SquareRange only,
                        const SquareRange* ranges, int num_ranges) {
  const SquareRange own = num_ranges == 1 ? only : find_range(ranges, num_ranges, blockIdx.x);
  x += own.begin;
  const int64_t n = own.end - own.begin;
  const int64_t last_vector = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? n - 4 : -1;
  double chain[4] = {0, 0, 0, 0};
  const int64_t first = (blockIdx.x - own.first_tile) * kTile + threadIdx.x * 4;
#pragma unroll 8
  for (int j = 0; j < kGroups; ++j) {
    const int64_t at = first + int64_t{j} * kThreads * 4;
    if (at <= last_vector) {
      const float4 v = *reinterpret_cast<const float4*>(x + at);
      add_square(chain[0], v.x);
      add_square(chain[1], v.y);
      add_square(chain[2], v.z);
      add_square(chain[3], v.w);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at + i < n) add_square(chain[i], x[at + i]);
      }
    }
  }
  const double sum = sum_over_block<kThreads>(
      __dadd_rn(__dadd_rn(chain[0], chain[1]), __dadd_rn(chain[2], chain[3])));
  if (threadIdx.x == 0) tile_sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kFinalThreads)
    sum_tiles_kernel(double* sum, const double* tile_sums, int64_t tiles) {
  double own = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < tiles; i += kFinalThreads) own = __dadd_rn(own, tile_sums[i]);
  own = sum_over_block<kFinalThreads>(own);
  if (threadIdx.x == 0) *sum = own;
}

int64_t count_tiles(int64_t n) { return (n + kTile - 1) / kTile; }

}  // namespace

size_t sum_of_squares_workspace(int64_t n) {
  return static_cast<size_t>(count_tiles(n)) * sizeof(double);
}

cudaError_t sum_of_squares(double* sum, const float* x, int64_t n, void* workspace,
                           cudaStream_t stream) {
  if (n < 0) return cudaErrorInvalidValue;
  return sum_of_squares(sum, x, {.begin = 0, .end = n}, nullptr, 1, count_tiles(n), workspace,
                        stream);
}

int64_t lay_out_tiles(SquareRange* ranges, int64_t num_ranges) {
  int64_t tiles = 0;
  for (int64_t r = 0; r < num_ranges; ++r) {
    ranges[r].first_tile = tiles;
    tiles += count_tiles(ranges[r].end - ranges[r].begin);
  }
  return tiles;
}

cudaError_t sum_of_squares(double* sum, const float* x, SquareRange first,
                           const SquareRange* ranges, int64_t num_ranges, int64_t tiles,
                           void* workspace, cudaStream_t stream) {
  if (tiles < 0 || tiles > INT_MAX || num_ranges < 0 || num_ranges > INT_MAX)
    return cudaErrorInvalidValue;
  auto* tile_sums = static_cast<double*>(workspace);
  if (tiles > 0) {
    square_tiles_kernel<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(
        tile_sums, x, first, ranges, static_cast<int>(num_ranges));
  }
  sum_tiles_kernel<<<1, kFinalThreads, 0, stream>>>(sum, tile_sums, tiles);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels
