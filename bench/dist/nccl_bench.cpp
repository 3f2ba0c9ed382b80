// What the exchange of a step costs: gradients summed to their owners whole and by parts, weights
// gathered, and how much of the sums a busy device hides. One device a rank:
//   mpirun -np 2 nccl_bench [elements, default 2^29] [parts, default 8]
// The peer is NCCL's own operation for equal ranges; what we need is ranges that start and end
// anywhere. GB/s: what a rank must send, elements * bytes * (ranks - 1) / ranks, by time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/dist/device_communicator.h"
#include "slimexx/ops/ops.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Bench {
  World& world;
  tensor::Device device;
  DeviceCommunicator& exchange;

  // Median of some runs of both streams, the slowest rank's.
  double time_ms(const std::function<void()>& run) const {
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      tensor::synchronize(tensor::compute_stream(device));
      world.communicator().barrier();
      const auto start = std::chrono::steady_clock::now();
      run();
      tensor::synchronize(tensor::side_stream(device));
      tensor::synchronize(tensor::compute_stream(device));
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      double slowest[1] = {took.count()};
      world.communicator().all_reduce_max(slowest);
      if (i >= 2) times.push_back(slowest[0]);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  double report(const char* what, double bytes, double peer_ms,
                const std::function<void()>& run) const {
    const double ms = time_ms(run);
    const double sent = bytes * (world.size() - 1) / world.size();
    if (world.rank() == 0)
      fmt::print("{:<44} {:8.3f} ms {:7.1f} GB/s{}\n", what, ms, sent / ms * 1e-6,
                 peer_ms > 0 ? fmt::format("  {:.3f} x peer", peer_ms / ms) : "");
    return ms;
  }
};

std::vector<Range> clip(const std::vector<Range>& ranges, Range part) {
  std::vector<Range> clipped;
  for (const Range& r : ranges) {
    const int64_t begin = std::clamp(r.begin, part.begin, part.end);
    clipped.push_back({begin, std::clamp(r.end, begin, part.end)});
  }
  return clipped;
}

void run(World& world, int64_t n, int parts) {
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  tensor::select_device(device);
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  const auto exchange = make_device_communicator(world.communicator(), all, device);
  const Bench bench{world, device, *exchange};
  const tensor::Stream compute = tensor::compute_stream(device), side = tensor::side_stream(device);

  n = n / (16 * world.size()) * 16 * world.size();
  const auto tiles = split_range(n, world.size()), uneven = split_range(n - 16, world.size());
  const auto wholes = split_range(n - 16, parts);
  const tensor::Buffer gradient_buffer(device, n * 4, "gradients");
  const Tensor gradients = gradient_buffer.view(DType::kF32, {n});
  const Tensor weights = gradient_buffer.view(DType::kBF16, {n});
  const double bytes = 4.0 * static_cast<double>(n);
  if (world.rank() == 0)
    fmt::print("{}, {} ranks, {} elements\n", device_communicator_version(), world.size(), n);

  const double sum_ms = bench.report("f32 sums to equal ranges (peer)", bytes, 0,
                                     [&] { exchange->reduce_scatter_sum(side, gradients, tiles); });
  bench.report("f32 sums to unequal ranges", bytes, sum_ms,
               [&] { exchange->reduce_scatter_sum(side, gradients, uneven); });
  const auto sum_by_parts = [&] {
    for (const Range& part : wholes)
      exchange->reduce_scatter_sum(side, gradients, clip(uneven, part));
  };
  const double parts_ms =
      bench.report(fmt::format("f32 sums by {} parts", parts).c_str(), bytes, sum_ms, sum_by_parts);
  const double gather_ms = bench.report("bf16 gather of equal ranges (peer)", bytes / 2, 0, [&] {
    exchange->all_gather_ranges(compute, weights, tiles);
  });
  bench.report("bf16 gather of unequal ranges", bytes / 2, gather_ms,
               [&] { exchange->all_gather_ranges(compute, weights, uneven); });

  // Matrix products of about four times the length, with the sums beside them and without.
  constexpr int64_t kTokens = 8192, kIn = 4096, kOut = 12288;
  const tensor::Buffer operands(device, (kTokens * kIn + kOut * kIn + kTokens * kOut) * 2,
                                "products");
  const Tensor x = operands.view(DType::kBF16, {kTokens, kIn});
  const Tensor w = operands.view(DType::kBF16, {kOut, kIn}, kTokens * kIn * 2);
  const Tensor y = operands.view(DType::kBF16, {kTokens, kOut}, (kTokens * kIn + kOut * kIn) * 2);
  tensor::Arena arena(device, int64_t{64} << 20, "scratch");
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i) ops::matmul_forward(compute.with_scratch(arena), y, x, w, {});
  };
  double one_ms[1] = {bench.time_ms([&] { multiply(8); }) / 8};
  world.communicator().all_reduce_max(one_ms);
  const int times = std::max(1, static_cast<int>(4 * parts_ms / one_ms[0]));
  const double alone_ms = bench.time_ms([&] { multiply(times); });
  const double both_ms = bench.time_ms([&] {
    sum_by_parts();
    multiply(times);
  });
  if (world.rank() == 0)
    fmt::print("{} products: {:.3f} ms; with the sums beside them {:.3f} ms: {:.0f}% hidden\n",
               times, alone_ms, both_ms, 100 * (1 - (both_ms - alone_ms) / parts_ms));
}

}  // namespace
}  // namespace slimexx::dist

int main(int argc, char** argv) {
  slimexx::dist::World world;
  try {
    slimexx::dist::run(world, argc > 1 ? std::atoll(argv[1]) : int64_t{1} << 29,
                       argc > 2 ? std::atoi(argv[2]) : 8);
    return 0;
  } catch (const slimexx::Error& e) {
    fmt::print(stderr, "rank {}: {}\n", world.rank(), e.what());
    world.abort(slimexx::exit_status(e.code()));
    return slimexx::exit_status(e.code());
  }
}
