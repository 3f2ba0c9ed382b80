// dK and dV for groups of more than kHeadsPerPart query heads: adds the sums of the parts in
// ascending order.
#include "kernels/attention_backward/problem.cuh"
#include "kernels/common/bf16.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {

constexpr int kThreads = 256;

// A thread owns 4 neighbouring values of dK and of dV.
__global__ void __launch_bounds__(kThreads)
    sum_parts(const __grid_constant__ Problem problem, int row_values) {
  const int64_t values = problem.tokens * row_values;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4;
  const int64_t token = at / row_values;
  if (token >= problem.cu_seqlens[problem.sequences]) return;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const float* from = which == 0 ? problem.partial_dk : problem.partial_dv;
    uint16_t* to = which == 0 ? problem.dk + token * problem.dk_stride
                              : problem.dv + token * problem.dv_stride;
    float4 sum = *reinterpret_cast<const float4*>(from + at);
    for (int part = 1; part < problem.parts; ++part) {
      const float4 x = *reinterpret_cast<const float4*>(from + part * values + at);
      sum.x = __fadd_rn(sum.x, x.x);
      sum.y = __fadd_rn(sum.y, x.y);
      sum.z = __fadd_rn(sum.z, x.z);
      sum.w = __fadd_rn(sum.w, x.w);
    }
    *reinterpret_cast<uint2*>(to + at % row_values) =
        make_uint2(pack_bf16(sum.x, sum.y), pack_bf16(sum.z, sum.w));
  }
}

}  // namespace

cudaError_t launch_sum_parts(const Launch& launch, cudaStream_t stream) {
  const Problem& p = launch.problem;
  const int row_values = p.kv_heads * launch.head_dim;
  const int64_t threads = p.tokens * row_values / 4;
  sum_parts<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      p, row_values);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels::attention_gradient
