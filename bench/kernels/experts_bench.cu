// Times the mixture of experts: grouped products, with equal counts per expert and with counts of a
// random router, in alternation, each long enough to reach the chip's power limit; then a layer's
// router, sort, gather and sum.
//
//   experts_bench [seconds per measurement, 0.3]
//
// Rates count 2 x rows x n x k operations; bytes are the minimum that must move.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/kernels/replay.h"
#include "slimexx/kernels/experts.h"
#include "slimexx/kernels/rows.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/experts/grouped_case.cuh"
#include "tests/kernels/experts/router_case.h"
#include "tests/kernels/fill.cuh"

namespace slimexx::kernels::testing {
namespace {

void check_launch(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "%s\n", fault);
  std::exit(2);
}

// Each shape is timed with equal counts and with a random expert per row.
std::vector<GroupedCase> cases() {
  return {{"GLM-4.7-Flash gate_up, 8192 tokens", 32768, 64, 3072, 2048},
          {"GLM-4.5 on 16 ranks gate_up, 16384 tokens", 8192, 10, 3072, 5120},
          {"Qwen3-30B-A3B gate_up, 8192 tokens", 65536, 128, 1536, 2048},
          {"Qwen3-30B-A3B down, 8192 tokens", 65536, 128, 2048, 768},
          {"Qwen3-30B-A3B gate_up, 256 tokens", 2048, 128, 1536, 2048},
          {"Qwen3-30B-A3B down, 256 tokens", 2048, 128, 2048, 768},
          {"Qwen3-30B-A3B gate_up, 1 token", 8, 128, 1536, 2048}};
}

struct Candidate {
  std::string name;
  double flops, bytes;
  std::unique_ptr<Replay> replay;
  std::vector<double> times;
};

void print_times(std::vector<Candidate>& all, double turn_us) {
  for (int turn = 0; turn < 3; ++turn) {
    for (Candidate& c : all) c.times.push_back(c.replay->measure(turn_us));
  }
  for (Candidate& c : all) {
    std::sort(c.times.begin(), c.times.end());
    const double us = c.times[1];
    std::printf("  %-28s %9.1f us", c.name.c_str(), us);
    if (c.flops > 0) std::printf("  %6.1f TFLOP/s", c.flops / us / 1e6);
    std::printf("  %6.0f GB/s\n", c.bytes / us / 1e3);
  }
}

void time_products(const GroupedCase& s, double turn_us) {
  std::printf("%s: %ld rows, %ld experts, %ld x %ld\n", s.name.c_str(), long(s.rows),
              long(s.experts), long(s.n), long(s.k));
  GroupedCase random = s;
  random.spread = Spread::kRandom;
  const GroupedOperands even(s), uneven(random);
  std::vector<Candidate> all;
  const double flops = 2.0 * double(s.rows) * double(s.n) * double(s.k);
  const double used = double(std::min(s.experts, s.rows));
  const double io = 2.0 * double(s.rows) * double(s.n + s.k), weights = used * double(s.n * s.k);
  const auto add = [&](const std::string& name, double bytes, auto&& launch) {
    for (const GroupedOperands* o : {&even, &uneven}) {
      if (o == &uneven && s.rows < s.experts) continue;
      all.push_back({name + (o == &even ? "" : ", random"),
                     flops,
                     bytes,
                     std::make_unique<Replay>(
                         4, [=](int, cudaStream_t stream) { check_launch(launch(*o, stream)); }),
                     {}});
    }
  };
  add("product", io + 2 * weights, [](const GroupedOperands& o, cudaStream_t stream) {
    return launch_grouped_gemm(o.forward(o.y.data()), stream);
  });
  add("product with SwiGLU", io + 2 * weights, [](const GroupedOperands& o, cudaStream_t stream) {
    return launch_grouped_gemm_swiglu(o.forward(o.h.data()), stream);
  });
  if (s.rows > 4096) {
    add("gradient by rows", io + 2 * weights, [](const GroupedOperands& o, cudaStream_t stream) {
      return launch_grouped_input_grad(o.input_gradient(o.dx.data()), stream);
    });
    const auto weight_gradient = [](bool accumulate) {
      return [=](const GroupedOperands& o, cudaStream_t stream) {
        return launch_grouped_weight_grad(o.weight_gradient(o.dw.data(), accumulate), stream);
      };
    };
    add("gradient by weights", io + 4 * weights, weight_gradient(false));
    add("added to another", io + 8 * weights, weight_gradient(true));
  }
  print_times(all, turn_us);
}

// A layer's work around its products: each of `tokens` tokens goes to k of `experts` experts.
void time_rows(int64_t tokens, int64_t experts, int64_t k, int64_t width, double turn_us) {
  std::printf("%ld tokens to %ld of %ld experts, rows of %ld\n", long(tokens), long(k),
              long(experts), long(width));
  const int64_t rows = tokens * k;
  const RouterCase routed({.experts = experts, .top_k = k}, tokens, false);
  const RouterShape& shape = routed.shape;
  const Bf16Array x(tokens * width), in(rows * width), y(tokens * width);
  const FloatArray logits(routed.logits), weights(rows);
  const Array<int32_t> ids(rows), offsets(experts + 1), choices(rows), of_token(rows), places(rows);
  fill(x, tokens * width, 1);
  fill(in, rows * width, 2);
  const DeviceArray<char> workspace(static_cast<int64_t>(sort_by_expert_workspace(rows, experts)) +
                                    16);
  std::vector<Candidate> all;
  const auto add = [&](const char* name, double bytes, auto&& launch) {
    all.push_back({name,
                   0,
                   bytes,
                   std::make_unique<Replay>(8, [=](int, cudaStream_t stream) { launch(stream); }),
                   {}});
  };
  add("router", 4.0 * double(tokens * experts), [&](cudaStream_t stream) {
    check_launch(
        route_forward(ids.data(), weights.data(), logits.data(), nullptr, shape, tokens, stream));
  });
  add("order", 16.0 * double(rows), [&](cudaStream_t stream) {
    check_launch(sort_by_expert(offsets.data(), choices.data(), of_token.data(), places.data(),
                                ids.data(), rows, k, experts, workspace.data(), stream));
  });
  const double moved = 2.0 * double(rows * width), whole = 2.0 * double(tokens * width);
  add("gather", 2 * moved, [&](cudaStream_t stream) {
    SLX_CUDA(gather_rows(in.data(), width, x.data(), width, of_token.data(), rows, width, stream));
  });
  add("weighted sum", moved + whole, [&](cudaStream_t stream) {
    check_launch(combine_rows(y.data(), in.data(), weights.data(), nullptr, places.data(), tokens,
                              k, width, stream));
  });
  add("copy of as many bytes", 2 * moved, [&](cudaStream_t stream) {
    SLX_CUDA(cudaMemcpyAsync(in.data(), in.data() + rows * width / 2,
                             static_cast<size_t>(moved / 2), cudaMemcpyDeviceToDevice, stream));
    SLX_CUDA(cudaMemcpyAsync(in.data(), in.data() + rows * width / 2,
                             static_cast<size_t>(moved / 2), cudaMemcpyDeviceToDevice, stream));
  });
  print_times(all, turn_us);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const double turn_us = (argc > 1 ? std::atof(argv[1]) : 0.3) * 1e6;
  for (const GroupedCase& c : cases()) time_products(c, turn_us);
  time_rows(8192, 128, 8, 2048, turn_us);
  time_rows(8192, 64, 4, 2048, turn_us);
  time_rows(256, 128, 8, 2048, turn_us);
}
