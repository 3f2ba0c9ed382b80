// Times AdamW (30 bytes per element) and the sum of squares against the copy bandwidth of the same
// run. Both run on one range, and on the shards that one of eight ranks owns in 38 arrays.
// bench/peers/rows.py compares with torch.
#include "slimexx/kernels/optimizer.h"

#include <string>

#include "bench/kernels/rows_timing.h"

namespace slimexx::kernels::testing {
namespace {

// Segments like a model's parameters: few large ones with weight decay, many small ones without.
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

// Times one rank's shards: it owns 1 / ranks of each of `parts` arrays.
void run_pieces(int64_t n, int64_t parts, int64_t ranks, double copy) {
  const int64_t length = n / parts / 16 * 16, flat = length * ranks * parts;
  const DeviceArray<float> state(3 * length * parts), gradient(flat);
  const DeviceArray<uint16_t> weights(flat);
  std::vector<AdamWSegment> segments;
  std::vector<SquareRange> ranges;
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t dense = p * length, at = (p * ranks + ranks / 2) * length;
    segments.push_back({dense, dense + 2560, 0.0f, at - dense});
    segments.push_back({dense + 2560, dense + length, 0.1f, at - dense});
    ranges.push_back({at, at + length});
  }
  const int64_t tiles = lay_out_tiles(ranges.data(), parts);
  const DeviceArray<AdamWSegment> list(static_cast<int64_t>(segments.size()));
  const DeviceArray<SquareRange> range_list(parts);
  SLX_CUDA(cudaMemcpy(list.data(), segments.data(), segments.size() * sizeof(AdamWSegment),
                      cudaMemcpyHostToDevice));
  SLX_CUDA(cudaMemcpy(range_list.data(), ranges.data(), ranges.size() * sizeof(SquareRange),
                      cudaMemcpyHostToDevice));
  AdamWArgs args;
  args.weights = weights.data();
  args.n = length * parts;
  args.master = state.data();
  args.exp_avg = state.data() + args.n;
  args.exp_avg_sq = state.data() + 2 * args.n;
  args.gradient = gradient.data();
  args.lr = 1e-6f, args.beta1 = 0.9f, args.beta2 = 0.98f, args.eps = 1e-8f;
  args.bias_correction1 = 0.1, args.bias_correction2 = 0.02;
  const std::string shape = std::to_string(parts) + " x " + std::to_string(length);
  double us = time_launches(2, 1, 3e4, [&](int, cudaStream_t s) {
    SLX_CUDA(adamw(args, list.data(), static_cast<int64_t>(segments.size()), s));
  });
  print_line("adamw, pieces", shape.c_str(), us, 30.0 * double(args.n), copy);
  const DeviceArray<double> sum(1), workspace(tiles);
  us = time_launches(4, 1, 2e4, [&](int, cudaStream_t s) {
    SLX_CUDA(sum_of_squares(sum.data(), args.gradient, ranges[0], range_list.data(), parts, tiles,
                            workspace.data(), s));
  });
  print_line("sum_of_squares, pieces", shape.c_str(), us, 4.0 * double(args.n), copy);
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
  args.bias_correction1 = 0.1, args.bias_correction2 = 0.02;
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
  run_pieces(n, 38, 8, copy);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main() { slimexx::kernels::testing::run(400000000); }
