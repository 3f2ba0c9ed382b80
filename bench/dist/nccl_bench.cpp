// Times the collectives of a training step: the reduce-scatter of gradients, whole and in parts,
// and the all-gather of weights. Also measures how much sums and concurrent matrix products slow
// each other down. One device per rank:
//   mpirun -np 2 nccl_bench [elements, default 2^29] [parts, default 8]
// GB/s: bytes that a rank must send, elements * bytes * (ranks - 1) / ranks, divided by the time.
// "in rank order": sums that add the terms of the ranks in rank order, as sums of activations must.
// Their rate is printed relative to NCCL's for the same bytes, which NCCL adds in its own order.
// For the f32 reduce-scatter with equal ranges that is ncclReduceScatter, or with two ranks
// ncclReduce if it is faster. For sums of bf16 rows to all ranks it is ncclAllReduce of the same
// number of bytes in f32, the only type that we let NCCL add.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/dist/rank_bench.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/dist/world.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/tensor/graph.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

// Flat parameters in parts, each split over the ranks: range [part * ranks + rank].
struct Layout {
  std::vector<Range> whole;    // one part: equal ranges
  std::vector<Range> uneven;   // one part: almost equal ranges
  std::vector<Range> by_part;  // every part: equal ranges
  int num_ranks = 1;

  void sum_parts(Collective& exchange, tensor::Stream stream, const Tensor& data) const {
    tensor::Arena no_scratch(data.device(), 0, "scratch");
    for (size_t first = 0; first < by_part.size(); first += static_cast<size_t>(num_ranks))
      exchange.reduce_scatter_sum(stream, no_scratch, data, slices(first), SumOrder::kAny);
  }
  void gather_parts(Collective& exchange, tensor::Stream stream, const Tensor& data) const {
    for (size_t first = 0; first < by_part.size(); first += static_cast<size_t>(num_ranks))
      exchange.all_gather_ranges(stream, data, slices(first));
  }
  std::span<const Range> slices(size_t first) const {
    return std::span(by_part).subspan(first, static_cast<size_t>(num_ranks));
  }
};

Layout make_layout(int64_t n, int parts, int ranks) {
  Layout layout{split_range(n, ranks), split_range(n - 16, ranks), {}, ranks};
  for (const Range& part : split_range(n, parts, int64_t{16} * ranks)) {
    for (const Range& r : split_range(part.size(), ranks))
      layout.by_part.push_back({part.begin + r.begin, part.begin + r.end});
  }
  return layout;
}

// The products of a layer: one in forward and two in backward.
struct Products {
  static constexpr int64_t kTokens = 8192, kIn = 4096, kOut = 12288;
  explicit Products(tensor::Device device)
      : operands(device, (2 * kTokens * kIn + kOut * kIn + 2 * kTokens * kOut) * 2, "products"),
        gradient(device, kOut * kIn * 4, "products"),
        arena(device, int64_t{128} << 20, "scratch"),
        ctx(ops::compute_context(arena)) {}

  void run(int times) const {
    const auto view = [&](int64_t rows, int64_t columns, int64_t at) {
      return operands.view(DType::kBF16, {rows, columns}, at * 2);
    };
    const Tensor x = view(kTokens, kIn, 0), dx = view(kTokens, kIn, kTokens * kIn),
                 w = view(kOut, kIn, 2 * kTokens * kIn),
                 y = view(kTokens, kOut, 2 * kTokens * kIn + kOut * kIn),
                 dy = view(kTokens, kOut, 2 * kTokens * kIn + kOut * kIn + kTokens * kOut),
                 dw = gradient.view(DType::kF32, {kOut, kIn});
    for (int i = 0; i < times; ++i) {
      ops::matmul_forward(ctx, y, x, {w});
      ops::matmul_backward_input(ctx, dx, dy, w, false);
      ops::matmul_backward_weight(ctx, dw, {}, dy, x);
    }
  }

  tensor::Buffer operands, gradient;
  tensor::Arena arena;
  ops::Context ctx;
};

void report_overlap(const Bench& bench, const Layout& layout, const Tensor& gradients, double bytes,
                    Collective& exchange) {
  const Products products(bench.device);
  const auto side = tensor::side_stream(bench.device);
  const auto sum = [&] { layout.sum_parts(exchange, side, gradients); };
  const double sums_ms = bench.time_ms(sum);
  double one_ms[1] = {bench.time_ms([&] { products.run(4); }) / 4};
  all_reduce_max(bench.world.ranks(), one_ms);
  // `many` products take longer than the sums, which shows how much of the sums is not hidden.
  // `few` products take half as long as the sums, so sums run during all of them.
  const int many = std::max(1, static_cast<int>(2 * sums_ms / one_ms[0]));
  const int few = std::max(1, static_cast<int>(sums_ms / one_ms[0] / 2));
  const double many_ms = bench.time_ms([&] { products.run(many); });
  const double few_ms = bench.time_ms([&] { products.run(few); });
  const double both_ms = bench.time_ms([&] {
    sum();
    products.run(many);
  });
  const double slowed_ms = bench.time_ms(
      [&] {
        sum();
        products.run(few);
      },
      false);
  if (bench.world.rank() == 0)
    fmt::print(
        "sums {:7.3f} ms {:5.1f} GB/s; products {:.3f} ms, both at once {:.3f} ms: {:.3f} ms "
        "and {:.0f}% of the sums hidden; products during sums take {:.2f} x as long\n",
        sums_ms, bench.gigabytes_a_second(bytes, sums_ms), many_ms, both_ms,
        sums_ms - (both_ms - many_ms), 100 * (1 - (both_ms - many_ms) / sums_ms),
        slowed_ms / few_ms);
}

// Returns NCCL's time in ms for equal ranges, in its own order.
double report_sums(const Bench& bench, const Layout& layout, const Tensor& gradients, double bytes,
                   Collective& exchange) {
  const auto side = tensor::side_stream(bench.device);
  tensor::Arena scratch(bench.device, gradients.size_bytes(), "scratch");
  const auto sum = [&](const std::vector<Range>& ranges, SumOrder order) {
    exchange.reduce_scatter_sum(side, scratch, gradients, ranges, order);
  };
  const double nccl_ms = bench.report("f32 reduce-scatter, equal ranges", bytes,
                                      [&] { sum(layout.whole, SumOrder::kAny); });
  bench.report("f32 reduce-scatter, unequal ranges", bytes,
               [&] { sum(layout.uneven, SumOrder::kAny); });
  bench.report(
      "f32 reduce-scatter, equal ranges, in rank order", bytes,
      [&] { sum(layout.whole, SumOrder::kRank); }, nccl_ms);
  bench.report(
      fmt::format("f32 reduce-scatter by {} parts", layout.by_part.size() / layout.whole.size()),
      bytes, [&] { layout.sum_parts(exchange, side, gradients); });
  return nccl_ms;
}

void report_gathers(const Bench& bench, const Layout& layout, const Tensor& weights, double bytes,
                    Collective& exchange) {
  const auto compute = tensor::compute_stream(bench.device);
  const size_t parts = layout.by_part.size() / layout.whole.size();
  bench.report("bf16 all-gather, equal ranges", bytes,
               [&] { exchange.all_gather_ranges(compute, weights, layout.whole); });
  bench.report(fmt::format("bf16 all-gather of {} parts at once", parts), bytes,
               [&] { exchange.all_gather_ranges(compute, weights, layout.by_part); });
  bench.report(fmt::format("bf16 all-gather of {} parts one by one", parts), bytes,
               [&] { layout.gather_parts(exchange, compute, weights); });
}

// Times the exchanges between layers: gathers of rows, and sums in rank order to each rank's own
// range or to all ranks. Each is done by messages, and by kernels that access the other ranks'
// memory. A graph has many calls in a row, as a recorded decode step does.
void report_rows(const Bench& bench, Collective& exchange) {
  const tensor::Stream stream = tensor::compute_stream(bench.device);
  constexpr int64_t kWidth = 4096;
  tensor::Arena arena(bench.device, int64_t{512} << 20, "rows");
  tensor::Arena shares(bench.device, int64_t{256} << 20, "rows");
  std::map<int64_t, double> nccl_us;  // by number of rows
  for (const bool by_peers : {false, true}) {
    const auto memory = by_peers ? PeerMemory::make(exchange, arena.memory()) : nullptr;
    if (by_peers && memory == nullptr) return;
    for (const int64_t rows : {1, 8, 30, 256, 8192}) {
      const tensor::ArenaScope scope(arena), share_scope(shares);
      const std::vector<Range> ranges = split_range(rows, exchange.size(), 1);
      const Tensor data = arena.allocate(DType::kBF16, {rows, kWidth});
      const int64_t own = ranges[static_cast<size_t>(exchange.rank())].size();
      const Tensor share = shares.allocate(DType::kBF16, {own, kWidth});
      const int calls = rows > 1000 ? 20 : 200;
      const auto sum = [&] { exchange.sum_to_shares(stream, arena, share, data, ranges); };
      const Tensor all = shares.allocate(DType::kBF16, {rows, kWidth});
      const auto sum_to_all = [&] { exchange.sum_to_all(stream, arena, all, data); };
      const auto gather = [&] { exchange.gather_shares(stream, data, share, ranges); };
      const auto report = [&](const std::string& what, const char* how,
                              const std::function<void()>& call, double nccl = 0) {
        call();
        const tensor::Graph graph(stream, [&] {
          for (int i = 0; i < calls; ++i) call();
        });
        const double us = 1e3 * bench.time_ms([&] { graph.launch(stream); }) / calls;
        if (bench.world.rank() == 0)
          fmt::print("{:<34} {:<12} {:8.1f} us {:7.1f} GB/s{}\n", what, how, us,
                     bench.gigabytes_a_second(static_cast<double>(data.size_bytes()), us * 1e-3),
                     share_of_nccl(us, nccl));
        return us;
      };
      const auto report_ours = [&](const char* what, const std::function<void()>& call,
                                   double nccl = 0) {
        report(fmt::format("{:<10} of {} x {} bf16", what, rows, kWidth),
               by_peers ? "by kernels" : "by messages", call, nccl);
      };
      if (!by_peers) {
        const Tensor as_f32(data.raw(), DType::kF32, bench.device, {rows, kWidth / 2});
        nccl_us[rows] =
            report(fmt::format("all-reduce of {} x {} f32", rows, kWidth / 2), "by NCCL",
                   [&] { exchange.all_reduce_sum(stream, arena, as_f32, SumOrder::kAny); });
      }
      report_ours("sum", sum);
      report_ours("gather", gather);
      report_ours("sum to all", sum_to_all, nccl_us[rows]);
    }
  }
}

void report_peer_sums(const Bench& bench, const Layout& layout, const Tensor& gradients,
                      double bytes, double nccl_ms, Collective& exchange) {
  const auto memory = PeerMemory::make(
      exchange, Tensor(gradients.raw(), DType::kU8, bench.device, {gradients.size_bytes()}));
  if (memory == nullptr) return;
  const auto compute = tensor::compute_stream(bench.device);
  tensor::Arena scratch(bench.device, gradients.size_bytes(), "scratch");
  const auto sum = [&] {
    exchange.reduce_scatter_sum(compute, scratch, gradients, layout.whole, SumOrder::kRank);
  };
  bench.report("f32 reduce-scatter, equal ranges, in rank order, by kernels", bytes, sum, nccl_ms);
  const Tensor weights(gradients.raw(), DType::kBF16, bench.device, {gradients.dim(0)});
  bench.report("bf16 all-gather, equal ranges, by kernels", bytes / 2,
               [&] { exchange.all_gather_ranges(compute, weights, layout.whole); });
}

void run(World& world, int64_t n, int parts) {
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  tensor::select_device(device);
  const Bench bench{world, device};
  n = n / (16 * world.size()) * 16 * world.size();
  const Layout layout = make_layout(n, parts, world.size());
  const tensor::Buffer gradient_buffer(device, n * 4, "gradients");
  const Tensor gradients = gradient_buffer.view(DType::kF32, {n});
  const double bytes = 4.0 * static_cast<double>(n);
  if (world.rank() == 0)
    fmt::print("{}, {} ranks, {} elements\n", device_collective_version(), world.size(), n);
  const auto exchange = make_device_collective(world.ranks(), device);
  const double nccl_ms = report_sums(bench, layout, gradients, bytes, *exchange);
  report_gathers(bench, layout, gradient_buffer.view(DType::kBF16, {n}), bytes / 2, *exchange);
  report_overlap(bench, layout, gradients, bytes, *exchange);
  report_peer_sums(bench, layout, gradients, bytes, nccl_ms, *exchange);
  report_rows(bench, *exchange);
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
