// Times the backward pass of attention and, in the same process, a cuBLASLt product.
//   attention_backward_bench [repeats [shape]]     one shape, or all
// FLOPs are counted as 2.5 times those of the causal forward, without recomputation.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "bench/kernels/cublas.h"
#include "bench/kernels/flushed_timing.h"
#include "slimexx/kernels/attention_backward.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr double kNominal = 989.0;  // TFLOP/s

// TFLOP/s of the first algorithm that cuBLASLt suggests, at 8192^3.
double time_product(int repeats) {
  constexpr int64_t kN = 8192;
  DeviceArray<Bf16> a(kN * kN), b(kN * kN), c(kN * kN);
  fill_normal<<<1024, 256>>>(a.data(), a.count(), 1, 1.0f);
  fill_normal<<<1024, 256>>>(b.data(), b.count(), 2, 1.0f);
  SLX_CUDA(cudaGetLastError());
  CublasProduct product = CublasProduct::forward(kN, kN, kN, CUDA_R_16BF);
  product.choices = 1;
  const Cublas cublas(product);
  const double us = median_us(repeats, [&] { cublas.launch(0, a.data(), b.data(), c.data()); });
  const double rate = 2.0 * kN * kN * kN / us * 1e-6;
  std::printf("cublasLt 8192^3: %.1f us, %.0f TFLOP/s\n", us, rate);
  return rate;
}

void time_case(const Shape& s, const std::vector<int>& lengths, int repeats, double product_rate) {
  World world(s, lengths, 3);
  world.gap = 0;
  const Run run(world);
  double flops = 0;
  for (const int n : lengths) flops += 2.5 * 2.0 * s.hq * double(n) * n * s.d;
  const AttentionBackward& b = run.problem;
  const double us = median_us(repeats, [&] { SLX_CUDA(attention_backward(b, nullptr)); });
  const double rate = flops / us * 1e-6;
  std::printf(
      "attention_backward hq %d hk %d d %d, %zu x %d: %.1f us, %.0f TFLOP/s, %.0f %% of nominal, "
      "%.0f %% of cublasLt, workspace %.1f MB\n",
      s.hq, s.hk, s.d, lengths.size(), lengths[0], us, rate, 100 * rate / kNominal,
      100 * rate / product_rate, static_cast<double>(b.workspace_bytes) * 1e-6);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  const double product_rate = time_product(repeats);
  const std::vector<std::pair<Shape, std::vector<int>>> cases = {
      {{32, 2, 128}, {8192}}, {{32, 2, 128}, {16384}},
      {{32, 8, 128}, {8192}}, {{32, 8, 128}, std::vector<int>(8, 1024)},
      {{16, 8, 64}, {8192}},  {{32, 8, 128}, {700, 3100, 250, 1800, 90, 2252}},
  };
  const size_t first = argc > 2 ? static_cast<size_t>(std::atoi(argv[2])) : 0;
  const size_t last = argc > 2 ? std::min(first + 1, cases.size()) : cases.size();
  for (size_t i = first; i < last; ++i)
    time_case(cases[i].first, cases[i].second, repeats, product_rate);
}
