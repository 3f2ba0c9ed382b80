// Times AdamW (30 bytes an element) and the sum of squares against the copy bandwidth of the same
// run. bench/peers/rows.py puts torch beside it.
#include "slimexx/kernels/optimizer.h"

#include <string>

#include "bench/kernels/rows_timing.h"

namespace slimexx::kernels::testing {
namespace {

// As a model's parameters: few large segments with decay, many small ones without.
std::vector<AdamWSegment> make_segments(int64_t n) {
  std::vector<AdamWSegment> segments;
  for (int64_t at = 0; at < n;) {
    for (const int64_t length : {int64_t{2560}, int64_t{128}, int64_t{6000000}, int64_t{2560}}) {
      const int64_t end = std::min(n, at + length);
      if (at < end) segments.push_back({at, end, length < 10000 ? 0.0f : 0.1f});
      at = end;
    }
  }
  return segments;
}

void run(int64_t n) {
  const double copy = measure_copy();
  DeviceArray<float> state(4 * n);
  state.set_bytes(0);
  DeviceArray<uint16_t> weights(n);
  const std::vector<AdamWSegment> segments = make_segments(n);
  const auto count = static_cast<int64_t>(segments.size());
  const DeviceArray<AdamWSegment> list(count);
  SLX_CUDA(cudaMemcpy(list.data(), segments.data(), segments.size() * sizeof(AdamWSegment),
                      cudaMemcpyHostToDevice));
  AdamWArgs args;
  args.weights = weights.data();
  args.master = state.data();
  args.exp_avg = state.data() + n;
  args.exp_avg_sq = state.data() + 2 * n;
  args.gradient = state.data() + 3 * n;
  args.n = n;
  args.lr = 1e-6f, args.beta1 = 0.9f, args.beta2 = 0.98f, args.eps = 1e-8f;
  args.bias_correction1 = 0.1f, args.bias_correction2 = 0.02f;
  const std::string shape = std::to_string(n);
  double us = time_launches(
      2, 1, 3e4, [&](int, cudaStream_t s) { SLX_CUDA(adamw(args, list.data(), count, s)); });
  print_line("adamw", shape.c_str(), us, 30.0 * double(n), copy);
  const DeviceArray<double> sum(1);
  const DeviceArray<char> workspace(static_cast<int64_t>(sum_of_squares_workspace(n)));
  us = time_launches(4, 1, 2e4, [&](int, cudaStream_t s) {
    SLX_CUDA(sum_of_squares(sum.data(), args.gradient, n, workspace.data(), s));
  });
  print_line("sum_of_squares", shape.c_str(), us, 4.0 * double(n), copy);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main() { slimexx::kernels::testing::run(400000000); }
