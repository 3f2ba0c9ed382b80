// Times of attention over whole sequences, as in training and prefill: packed, causal, grouped
// queries. Each shape runs long enough to meet the chip's power limit, which a cold first launch
// does not: it shows a tenth more and over. Peer: bench/peers/attention.py, which waits as long.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

#include "bench/kernels/rows_timing.h"
#include "slimexx/kernels/attention.h"
#include "tests/kernels/need_device.h"
#include "tests/kernels/normal_values.cuh"

namespace {

using namespace slimexx::kernels;
using namespace slimexx::kernels::testing;

constexpr double kTargetMicroseconds = 2e5;
constexpr double kPeakTeraflops = 989;

struct Shape {
  int query_heads, kv_heads, head_dim;
  std::vector<int> lengths;
};

// Queries, keys and values side by side in a token's row, as one projection writes them.
void time_shape(const Shape& shape) {
  std::vector<int32_t> ends{0};
  double flops = 0;
  for (int n : shape.lengths) {
    ends.push_back(ends.back() + n);
    flops += 2.0 * shape.query_heads * n * double(n) * shape.head_dim;
  }
  const int64_t tokens = ends.back(), q_row = int64_t{shape.query_heads} * shape.head_dim;
  const int64_t k_row = int64_t{shape.kv_heads} * shape.head_dim, row = q_row + 2 * k_row;
  DeviceArray<__nv_bfloat16> fused(tokens * row), out(tokens * q_row);
  DeviceArray<float> lse(tokens * shape.query_heads);
  const DeviceArray<int32_t> cu_seqlens(static_cast<int64_t>(ends.size()));
  SLX_CUDA(cudaMemcpy(cu_seqlens.data(), ends.data(), ends.size() * sizeof(int32_t),
                      cudaMemcpyHostToDevice));
  fill_normal<<<2048, 256>>>(fused.data(), tokens * row, 1, 1.0f);
  SLX_CUDA(cudaDeviceSynchronize());

  AttentionForward a;
  a.q = fused.data(), a.k = fused.data() + q_row, a.v = fused.data() + q_row + k_row;
  a.out = out.data(), a.lse = lse.data();
  a.q_stride = a.k_stride = a.v_stride = row, a.out_stride = q_row;
  a.cu_seqlens = cu_seqlens.data();
  a.tokens = tokens;
  a.query_heads = shape.query_heads, a.kv_heads = shape.kv_heads, a.head_dim = shape.head_dim;
  const int longest = *std::max_element(shape.lengths.begin(), shape.lengths.end());
  a.runs.whole = {static_cast<int64_t>(shape.lengths.size()), longest, longest};
  a.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  a.workspace_bytes = attention_forward_workspace(a);
  DeviceArray<char> workspace(static_cast<int64_t>(a.workspace_bytes));
  a.workspace = workspace.data();

  const auto launch = [&](int, cudaStream_t stream) { SLX_CUDA(attention_forward(a, stream)); };
  time_launches(4, 1, kTargetMicroseconds, launch);  // until the clock has settled
  const double us = time_launches(4, 1, kTargetMicroseconds, launch);
  std::printf("hq %d hk %d d %3d, %2zu sequences of up to %5lld: %8.1f us %4.0f TFLOP/s %3.0f %%\n",
              shape.query_heads, shape.kv_heads, shape.head_dim, shape.lengths.size(),
              static_cast<long long>(longest), us, flops / us * 1e-6,
              100 * flops / us * 1e-6 / kPeakTeraflops);
  std::fflush(stdout);
}

}  // namespace

int main() {
  need_device();
  for (const Shape& shape :
       {Shape{32, 8, 128, {8192}}, Shape{32, 8, 128, std::vector(8, 1024)},
        Shape{32, 8, 128, std::vector(4, 2048)}, Shape{32, 8, 128, std::vector(16, 512)},
        Shape{32, 8, 128, {2900, 410, 1770, 2230, 300, 950, 1310, 2480}}, Shape{32, 2, 128, {8192}},
        Shape{32, 8, 64, {8192}}}) {
    time_shape(shape);
  }
  return 0;
}
