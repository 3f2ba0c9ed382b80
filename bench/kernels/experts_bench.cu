// Times the mixture of experts: products of routed rows by shape, with equal counts and with those
// of a random router, in turns, each long enough that the chip runs at its power limit; and the
// router, the order, the gather and the sum of a layer.
//
//   experts_bench [seconds of one turn, 0.3]
//
// Rates count 2 R n k operations; bytes are those that must move.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/replay.h"
#include "slimexx/kernels/experts.h"
#include "slimexx/kernels/rows.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;

void check_launch(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "%s\n", fault);
  std::exit(2);
}

struct Shape {
  const char* name;
  int64_t rows, experts, n, k;
};
constexpr Shape kShapes[] = {
    {"GLM-4.7-Flash gate_up, 8192 tokens", 32768, 64, 3072, 2048},
    {"GLM-4.5 on 16 ranks gate_up, 16384 tokens", 8192, 10, 3072, 5120},
    {"Qwen3-30B-A3B gate_up, 8192 tokens", 65536, 128, 1536, 2048},
    {"Qwen3-30B-A3B down, 8192 tokens", 65536, 128, 2048, 768},
    {"Qwen3-30B-A3B gate_up, 256 tokens", 2048, 128, 1536, 2048},
    {"Qwen3-30B-A3B down, 256 tokens", 2048, 128, 2048, 768},
    {"Qwen3-30B-A3B gate_up, 1 token", 8, 128, 1536, 2048},
};

// Offsets of equal counts, or of rows that choose their expert at random.
std::vector<int32_t> make_offsets(const Shape& s, bool random) {
  std::vector<int32_t> counts(static_cast<size_t>(s.experts), 0);
  std::mt19937_64 engine(7);
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t e =
        random ? static_cast<int64_t>(engine() % static_cast<uint64_t>(s.experts)) : r % s.experts;
    ++counts[static_cast<size_t>(e)];
  }
  std::vector<int32_t> offsets = {0};
  for (const int32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

struct Operands {
  Operands(const Shape& s_, bool random)
      : s(s_),
        x(s.rows * s.k),
        y(s.rows * s.n),
        h(s.rows * s.n / 2),
        w(s.experts * s.n * s.k),
        dw(s.experts * s.n * s.k),
        offsets(s.experts + 1) {
    fill_normal<<<2048, 256>>>(x.data(), x.count(), 1, 1.0f);
    fill_normal<<<2048, 256>>>(y.data(), y.count(), 3, 1.0f);
    fill_normal<<<2048, 256>>>(w.data(), w.count(), 2, 1.0f / std::sqrt(float(s.k)));
    const std::vector<int32_t> host = make_offsets(s, random);
    SLX_CUDA(cudaMemcpy(offsets.data(), host.data(), host.size() * 4, cudaMemcpyHostToDevice));
    SLX_CUDA(cudaDeviceSynchronize());
  }
  GroupedRows rows() const { return {offsets.data(), s.experts, s.rows}; }
  Shape s;
  Bf16Array x, y, h, w;
  DeviceArray<float> dw;
  DeviceArray<int32_t> offsets;
};

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

void time_products(const Shape& s, double turn_us) {
  std::printf("%s: %ld rows, %ld experts, %ld x %ld\n", s.name, long(s.rows), long(s.experts),
              long(s.n), long(s.k));
  const Operands even(s, false), uneven(s, true);
  std::vector<Candidate> all;
  const double flops = 2.0 * double(s.rows) * double(s.n) * double(s.k);
  const double used = double(std::min(s.experts, s.rows));
  const double io = 2.0 * double(s.rows) * double(s.n + s.k), weights = used * double(s.n * s.k);
  const auto add = [&](const std::string& name, double bytes, auto&& launch) {
    for (const Operands* o : {&even, &uneven}) {
      if (o == &uneven && s.rows < s.experts) continue;
      all.push_back({name + (o == &even ? "" : ", random"),
                     flops,
                     bytes,
                     std::make_unique<Replay>(
                         4, [=](int, cudaStream_t stream) { check_launch(launch(*o, stream)); }),
                     {}});
    }
  };
  add("product", io + 2 * weights, [](const Operands& o, cudaStream_t stream) {
    return launch_grouped_gemm({o.x.data(), o.w.data(), o.y.data(), o.rows(), o.s.n, o.s.k},
                               stream);
  });
  add("product with SwiGLU", io + 2 * weights, [](const Operands& o, cudaStream_t stream) {
    return launch_grouped_gemm_swiglu({o.x.data(), o.w.data(), o.h.data(), o.rows(), o.s.n, o.s.k},
                                      stream);
  });
  if (s.rows > 4096) {
    add("gradient by rows", io + 2 * weights, [](const Operands& o, cudaStream_t stream) {
      return launch_grouped_input_grad({o.y.data(), o.w.data(), o.x.data(), o.rows(), o.s.n, o.s.k},
                                       stream);
    });
    const auto weight_gradient = [](const Operands& o, bool accumulate, cudaStream_t stream) {
      GroupedWeightGradArgs args;
      args.dy = o.y.data(), args.x = o.x.data(), args.dw = o.dw.data();
      args.rows = o.rows(), args.n = o.s.n, args.k = o.s.k, args.accumulate = accumulate;
      return launch_grouped_weight_grad(args, stream);
    };
    add("gradient by weights", io + 4 * weights,
        [=](const Operands& o, cudaStream_t stream) { return weight_gradient(o, false, stream); });
    add("added to another", io + 8 * weights,
        [=](const Operands& o, cudaStream_t stream) { return weight_gradient(o, true, stream); });
  }
  print_times(all, turn_us);
}

// A layer's work around its products: T tokens to k of E experts, rows of `width`.
void time_rows(int64_t tokens, int64_t experts, int64_t k, int64_t width, double turn_us) {
  std::printf("%ld tokens to %ld of %ld experts, rows of %ld\n", long(tokens), long(k),
              long(experts), long(width));
  const int64_t rows = tokens * k;
  const Bf16Array x(tokens * width), in(rows * width), y(tokens * width);
  const DeviceArray<float> logits(tokens * experts), weights(rows);
  const DeviceArray<int32_t> ids(rows), offsets(experts + 1), choices(rows), of_token(rows),
      places(rows);
  fill_normal<<<2048, 256>>>(x.data(), x.count(), 1, 1.0f);
  fill_normal<<<2048, 256>>>(in.data(), in.count(), 1, 1.0f);
  std::vector<float> host(static_cast<size_t>(tokens * experts));
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (float& value : host) value = normal(engine);
  SLX_CUDA(cudaMemcpy(logits.data(), host.data(), host.size() * 4, cudaMemcpyHostToDevice));
  const DeviceArray<char> workspace(static_cast<int64_t>(sort_by_expert_workspace(rows, experts)) +
                                    16);
  RouterShape shape;
  shape.experts = experts, shape.top_k = k;
  std::vector<Candidate> all;
  const auto add = [&](const char* name, double bytes, auto&& launch) {
    all.push_back({name,
                   0,
                   bytes,
                   std::make_unique<Replay>(8, [=](int, cudaStream_t stream) { launch(stream); }),
                   {}});
  };
  add("router", 4.0 * double(tokens * experts), [&, shape](cudaStream_t stream) {
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
    SLX_CUDA(cudaMemcpyAsync(in.data(), in.data() + in.count() / 2, static_cast<size_t>(moved / 2),
                             cudaMemcpyDeviceToDevice, stream));
    SLX_CUDA(cudaMemcpyAsync(in.data(), in.data() + in.count() / 2, static_cast<size_t>(moved / 2),
                             cudaMemcpyDeviceToDevice, stream));
  });
  print_times(all, turn_us);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const double turn_us = (argc > 1 ? std::atof(argv[1]) : 0.3) * 1e6;
  for (const Shape& shape : kShapes) time_products(shape, turn_us);
  time_rows(8192, 128, 8, 2048, turn_us);
  time_rows(8192, 64, 4, 2048, turn_us);
  time_rows(256, 128, 8, 2048, turn_us);
}
