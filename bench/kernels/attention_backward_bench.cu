// Times the gradient of attention beside a cuBLASLt product in one process.
//   attention_backward_bench [repeats [shape]]
// Of all shapes or of one.
// FLOPs are counted as 2.5 times the causal forward's, whatever the kernels recompute.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/kernels/flushed_timing.h"
#include "slimexx/kernels/attention.h"
#include "slimexx/kernels/attention_backward.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16 = __nv_bfloat16;
constexpr double kNominal = 989.0;  // TFLOP/s

void fill(const DeviceArray<Bf16>& array, uint64_t seed) {
  fill_normal<<<1024, 256>>>(array.data(), array.count(), seed, 1.0f);
  SLX_CUDA(cudaGetLastError());
}

void check_lt(cublasStatus_t status, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "line %d: cuBLASLt status %d\n", line, static_cast<int>(status));
  std::exit(2);
}
#define SLX_LT(call) check_lt((call), __LINE__)

// TFLOP/s of cuBLASLt's first choice at 8192^3.
double time_product(int repeats) {
  constexpr int64_t kN = 8192;
  constexpr size_t kScratch = size_t{32} << 20;
  DeviceArray<Bf16> a(kN * kN), b(kN * kN), c(kN * kN);
  DeviceArray<uint8_t> scratch(kScratch);
  fill(a, 1);
  fill(b, 2);
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulPreference_t preference;
  const cublasOperation_t transpose = CUBLAS_OP_T;
  SLX_LT(cublasLtCreate(&handle));
  SLX_LT(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  SLX_LT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                        sizeof(transpose)));
  SLX_LT(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, kN, kN, kN));
  SLX_LT(cublasLtMatmulPreferenceCreate(&preference));
  SLX_LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &kScratch, sizeof(kScratch)));
  cublasLtMatmulHeuristicResult_t choice;
  int found = 0;
  SLX_LT(cublasLtMatmulAlgoGetHeuristic(handle, product, layout, layout, layout, layout, preference,
                                        1, &choice, &found));
  const float one = 1, zero = 0;
  const double us = median_us(repeats, [&] {
    SLX_LT(cublasLtMatmul(handle, product, &one, a.data(), layout, b.data(), layout, &zero,
                          c.data(), layout, c.data(), layout, &choice.algo, scratch.data(),
                          kScratch, nullptr));
  });
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(product);
  cublasLtDestroy(handle);
  const double rate = 2.0 * kN * kN * kN / us * 1e-6;
  std::printf("cublasLt 8192^3: %.1f us, %.0f TFLOP/s\n", us, rate);
  return rate;
}

struct Shape {
  int hq, hk, d;
  std::vector<int> lengths;
};

void time_shape(const Shape& s, int repeats, double product_rate) {
  std::vector<int32_t> cu{0};
  double flops = 0;
  for (int n : s.lengths) {
    cu.push_back(cu.back() + n);
    flops += 2.5 * 2.0 * s.hq * double(n) * n * s.d;
  }
  const int64_t tokens = cu.back(), q_row = int64_t{s.hq} * s.d,
                row = q_row + 2 * int64_t{s.hk} * s.d;
  DeviceArray<Bf16> projected(tokens * row), gradients(tokens * row);
  DeviceArray<Bf16> out(tokens * q_row), dout(tokens * q_row);
  DeviceArray<float> lse(tokens * s.hq);
  DeviceArray<int32_t> cu_seqlens(static_cast<int64_t>(cu.size()));
  SLX_CUDA(cudaMemcpy(cu_seqlens.data(), cu.data(), cu.size() * 4, cudaMemcpyHostToDevice));
  fill(projected, 3);
  fill(dout, 4);
  AttentionForward f;
  f.q = projected.data(), f.k = projected.data() + q_row;
  f.v = projected.data() + q_row + s.hk * s.d;
  f.out = out.data(), f.lse = lse.data();
  f.q_stride = f.k_stride = f.v_stride = row, f.out_stride = q_row;
  f.cu_seqlens = cu_seqlens.data();
  f.tokens = tokens;
  f.query_heads = s.hq, f.kv_heads = s.hk, f.head_dim = s.d;
  const int longest = *std::max_element(s.lengths.begin(), s.lengths.end());
  f.runs.whole = {static_cast<int64_t>(s.lengths.size()), longest, longest};
  f.scale = 1.0f / std::sqrt(static_cast<float>(s.d));
  DeviceArray<uint8_t> scratch(static_cast<int64_t>(attention_forward_workspace(f)) + 16);
  f.workspace = scratch.data(), f.workspace_bytes = attention_forward_workspace(f);
  SLX_CUDA(attention_forward(f, nullptr));

  AttentionBackward b;
  b.q = f.q, b.k = f.k, b.v = f.v, b.out = f.out, b.dout = dout.data(), b.lse = lse.data();
  b.q_stride = b.k_stride = b.v_stride = b.dq_stride = b.dk_stride = b.dv_stride = row;
  b.out_stride = b.dout_stride = q_row;
  b.dq = gradients.data(), b.dk = gradients.data() + q_row;
  b.dv = gradients.data() + q_row + s.hk * s.d;
  b.cu_seqlens = cu_seqlens.data();
  b.tokens = tokens, b.sequences = f.runs.whole.sequences, b.query_heads = s.hq, b.kv_heads = s.hk;
  b.head_dim = b.value_dim = s.d, b.max_len = longest, b.scale = f.scale;
  DeviceArray<uint8_t> workspace(static_cast<int64_t>(attention_backward_workspace(b)));
  b.workspace = workspace.data(), b.workspace_bytes = attention_backward_workspace(b);
  const double us = median_us(repeats, [&] { SLX_CUDA(attention_backward(b, nullptr)); });
  const double rate = flops / us * 1e-6;
  std::printf(
      "attention_backward hq %d hk %d d %d, %zu x %d: %.1f us, %.0f TFLOP/s, %.0f %% of nominal, "
      "%.0f %% of cublasLt, workspace %.1f MB\n",
      s.hq, s.hk, s.d, s.lengths.size(), s.lengths[0], us, rate, 100 * rate / kNominal,
      100 * rate / product_rate, static_cast<double>(b.workspace_bytes) * 1e-6);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  const double product_rate = time_product(repeats);
  const std::vector<Shape> shapes = {
      {32, 2, 128, {8192}}, {32, 2, 128, {16384}},
      {32, 8, 128, {8192}}, {32, 8, 128, std::vector<int>(8, 1024)},
      {16, 8, 64, {8192}},  {32, 8, 128, {700, 3100, 250, 1800, 90, 2252}},
  };
  const size_t first = argc > 2 ? static_cast<size_t>(std::atoi(argv[2])) : 0;
  const size_t last = argc > 2 ? std::min(first + 1, shapes.size()) : shapes.size();
  for (size_t i = first; i < last; ++i) time_shape(shapes[i], repeats, product_rate);
}
