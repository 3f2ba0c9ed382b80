// Per query and head: D = dout . out, and the logarithm of its softmax's sum, in the order and
// padding in which the gradients' kernels read them. Memory-bound: out and dout are read once.
#include <cuda_bf16.h>

#include "kernels/attention_backward/problem.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = kThreads / 32;  // of one thread block; a warp has a row

// The sequence whose padded rows hold `row`, at most sequences - 1.
__device__ __forceinline__ int find_sequence(const Problem& problem, int64_t row) {
  int low = 0, high = problem.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (padded_start(problem.cu_seqlens[middle], middle) <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

__device__ __forceinline__ float multiply_pairs(uint32_t a, uint32_t b, float sum) {
  const float2 x = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(a));
  const float2 y = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(b));
  return __fmaf_rn(x.y, y.y, __fmaf_rn(x.x, y.x, sum));
}

// A warp has one row; its lanes are kHeadDim / 8 to a head.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ Problem problem) {
  constexpr int kLanes = kHeadDim / 8, kHeads = 32 / kLanes;
  if (blockIdx.x == 0 && threadIdx.x < 2) problem.next_item[threadIdx.x] = 0;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int sequence = find_sequence(problem, row);
  const int first_token = problem.cu_seqlens[sequence];
  const int64_t token = first_token + row - padded_start(first_token, sequence);
  // Rows before the first padded_start belong to nobody either.
  const bool present = token >= first_token && token < problem.cu_seqlens[sequence + 1];
#pragma unroll 4
  for (int first_head = 0; first_head < problem.query_heads; first_head += kHeads) {
    const int head = first_head + lane / kLanes;
    float sum = 0.0f;
    if (present && head < problem.query_heads) {
      const int64_t at = head * kHeadDim + lane % kLanes * 8;
      const uint4 x =
          *reinterpret_cast<const uint4*>(problem.out + token * problem.out_stride + at);
      const uint4 y =
          *reinterpret_cast<const uint4*>(problem.dout + token * problem.dout_stride + at);
      sum = multiply_pairs(
          x.w, y.w,
          multiply_pairs(x.z, y.z, multiply_pairs(x.y, y.y, multiply_pairs(x.x, y.x, sum))));
    }
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    }
    if (head < problem.query_heads && lane % kLanes == 0) {
      const int64_t to = head * problem.padded_tokens + row;
      problem.delta[to] = sum;
      problem.negative_lse[to] =
          present ? __fmul_rn(problem.lse[token * problem.query_heads + head], -1.4426950408889634f)
                  : __int_as_float(0xff800000);
    }
  }
}

}  // namespace

cudaError_t launch_prepare(const Launch& launch, cudaStream_t stream) {
  auto* kernel = launch.head_dim == 128 ? prepare<128> : prepare<64>;
  kernel<<<static_cast<unsigned>(launch.problem.padded_tokens / kRows), kThreads, 0, stream>>>(
      launch.problem);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels::attention_gradient
