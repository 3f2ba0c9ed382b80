// Row statistics for both gradient kernels of wide heads: negative_lse and D = dout . out. Rows
// past a sequence's end, up to the next multiple of 128, get -inf and 0.
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/attention_backward/items.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {

constexpr int kWarps = 8;
constexpr int kOutputs = 8;  // elements per lane; a row has up to 256

// A thread block takes a block of rows of one head; each warp takes one row at a time.
__global__ void __launch_bounds__(kWarps * 32)
    compute_wide_statistics(const __grid_constant__ Problem problem, const uint16_t* out,
                            int64_t out_stride, const uint16_t* dout, int64_t dout_stride) {
  Item item;
  int blocks = 0, head = 0;
  if (!find_walk(problem, static_cast<int>(blockIdx.x), problem.query_heads, item, blocks, head)) {
    return;
  }
  const int lane = threadIdx.x % 32, column = lane * kOutputs;
  const bool has_columns = column < problem.value_dim;
  const int64_t in_head = static_cast<int64_t>(head) * problem.value_dim + column;
#pragma unroll 4
  for (int i = threadIdx.x / 32; i < kBlockRows; i += kWarps) {
    const int row = (blocks - 1) * kBlockRows + i;
    const int64_t token = item.first_token + row;
    const bool exists = row < item.length;
    uint4 a{}, b{};
    if (exists && has_columns) {
      a = *reinterpret_cast<const uint4*>(out + token * out_stride + in_head);
      b = *reinterpret_cast<const uint4*>(dout + token * dout_stride + in_head);
    }
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sum = __fmaf_rn(widen_low(x[j]), widen_low(y[j]), sum);
      sum = __fmaf_rn(widen_high(x[j]), widen_high(y[j]), sum);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    }
    if (lane != 0) continue;
    const int64_t at = head * problem.padded_tokens + item.padded + row;
    problem.delta[at] = sum;
    problem.negative_lse[at] =
        exists ? __fmul_rn(problem.lse[token * problem.query_heads + head], -kLog2E)
               : attention::minus_infinity();
  }
}

}  // namespace

cudaError_t launch_wide_statistics(const Launch& launch, const WideOutputs& outputs,
                                   cudaStream_t stream) {
  const Problem& p = launch.problem;
  const int64_t items = p.padded_tokens / kBlockRows * p.query_heads;
  compute_wide_statistics<<<static_cast<unsigned>(items), kWarps * 32, 0, stream>>>(
      p, outputs.out, outputs.out_stride, outputs.dout, outputs.dout_stride);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels::attention_gradient
