#include "kernels/rows/partial_sums.cuh"

#include "kernels/rows/launch.cuh"

namespace slimexx::kernels::rows {
namespace {

constexpr int kColumns = 32;
constexpr int kGroups = 32;  // warps per block; each adds a range of the parts

// One lane per column: each warp adds its range of parts in ascending order, then the ranges are
// added in ascending order.
__global__ void __launch_bounds__(kColumns* kGroups) add_partial_sums_kernel(const PartialSums a) {
  enter_kernel();
  __shared__ float shared[kGroups][kColumns];
  const int lane = threadIdx.x % kColumns, group = threadIdx.x / kColumns;
  const int64_t column = int64_t{blockIdx.x} * kColumns + lane;
  float sum = 0.0f;
  if (column < a.columns) {
    const int64_t end = part_begin(group + 1, kGroups, a.parts);
#pragma unroll 4
    for (int64_t p = part_begin(group, kGroups, a.parts); p < end; ++p) {
      sum = __fadd_rn(sum, a.partial[p * a.columns + column]);
    }
  }
  shared[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= a.columns) return;
  for (int g = 1; g < kGroups; ++g) sum = __fadd_rn(sum, shared[g][lane]);
  float* out = column < a.split ? a.out : a.out_after;
  const int64_t at = column < a.split ? column : column - a.split;
  if (out != nullptr) out[at] = __fadd_rn(out[at], sum);
}

}  // namespace

cudaError_t add_partial_sums(const PartialSums& sums, cudaStream_t stream) {
  return launch(add_partial_sums_kernel, grid_of(divide_up(sums.columns, kColumns)),
                kColumns * kGroups, stream, sums);
}

}  // namespace slimexx::kernels::rows
