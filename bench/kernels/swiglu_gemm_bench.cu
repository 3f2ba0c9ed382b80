// Times the product with SwiGLU as epilogue and, in alternation, the product followed by the SwiGLU
// kernel, each long enough to reach the chip's power limit. Weights do not stay in L2.
//
//   swiglu_gemm_bench [all] [seconds per measurement, 0.3] M F K [M F K ...]
//
// all: also every tile whose estimated cost is at most 1.25 times that of the chosen one.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/kernels/replay.h"
#include "kernels/gemm/choose.h"
#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/rows.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_case.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
constexpr int64_t kRotatedBytes = int64_t{300} << 20;  // several times the L2

void check_launch(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "%s\n", fault);
  std::exit(2);
}

struct Operands : GemmOperands {
  Operands(int64_t rows, int64_t width, int64_t depth)
      : GemmOperands({.m = rows,
                      .n = 2 * width,
                      .k = depth,
                      .copies = std::max<int64_t>(2, kRotatedBytes / (4 * width * depth) + 1)}),
        f(width),
        gate_up(m * 2 * f),
        h(m * f) {}
  WeightCopies weights() const { return {w.data(), 2 * f * k, static_cast<int>(copies)}; }
  int64_t f;
  Bf16Array gate_up, h;
};

struct Candidate {
  char name[64];
  std::unique_ptr<Replay> replay;
  std::vector<double> times;
};

GemmArgs describe(const Operands& o, const __nv_bfloat16* w, const Bf16Array& y) {
  GemmArgs args = o.args(o.m, y.data());
  args.w = w;
  return args;
}

// The chosen configuration, then with `all` those of similar estimated cost, then other leads.
std::vector<GemmConfig> list_configs(const Operands& o, bool all) {
  std::vector<GemmConfig> list = {choose_gemm_swiglu_config(o.m, 2 * o.f, o.k)};
  const auto cost = [&o](const GemmConfig& c) { return estimate_gemm_ns(c, o.m, 2 * o.f, o.k); };
  for (int i = 0; all && i < count_gemm_swiglu_configs(); ++i) {
    const GemmConfig c = get_gemm_swiglu_config(i);
    if (cost(balance_gemm_tiles(c, o.m, 2 * o.f)) > 1.25 * cost(list[0])) continue;
    GemmConfig balanced = balance_gemm_tiles(c, o.m, 2 * o.f);
    if (c.swap_operands) balanced.rows = (balanced.rows + 15) / 16 * 16;
    list.push_back(balanced);
  }
  for (const int lead : {3, 4}) {
    if (list[0].lead == 0 || list[0].lead == lead) continue;
    list.push_back(list[0]);
    list.back().lead = lead;
  }
  return list;
}

std::vector<Candidate> list_candidates(const Operands& o, bool all) {
  std::vector<Candidate> list;
  const auto add = [&](const char* kind, const GemmConfig& c, const WeightLaunch& launch) {
    list.emplace_back();
    std::snprintf(list.back().name, sizeof(list.back().name), "%s %s%dx%dt%d c%d l%d", kind,
                  c.swap_operands ? "s" : "p", c.rows, c.columns, c.tokens, c.cluster, c.lead);
    list.back().replay = std::make_unique<Replay>(o.weights(), launch);
  };
  add("pair", choose_gemm_config(o.m, 2 * o.f, o.k), [&o](const __nv_bfloat16* w, cudaStream_t s) {
    check_launch(launch_gemm(describe(o, w, o.gate_up), s));
    SLX_CUDA(swiglu_forward(o.h.data(), o.gate_up.data(), o.m, o.f, s));
  });
  for (const GemmConfig& c : list_configs(o, all)) {
    add("fused", c, [&o, c](const __nv_bfloat16* w, cudaStream_t s) {
      check_launch(launch_gemm_swiglu(describe(o, w, o.h), c, s));
    });
  }
  return list;
}

void compare(const Operands& o, bool all, double seconds) {
  std::vector<Candidate> list = list_candidates(o, all);
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    for (Candidate& c : list) c.times.push_back(c.replay->measure(1e6 * seconds));
  }
  const double operations = 4.0 * static_cast<double>(o.m) * double(o.f) * double(o.k);
  double pair_us = 0;
  for (Candidate& c : list) {
    std::sort(c.times.begin(), c.times.end());
    const double us = c.times[kRounds / 2];
    if (pair_us == 0) pair_us = us;
    std::printf("%ld %ld %ld %-28s %9.2f us (%.2f to %.2f) %6.1f TFLOP/s, %.2f us saved, %.4f\n",
                long(o.m), long(o.f), long(o.k), c.name, us, c.times.front(), c.times.back(),
                operations / us * 1e-6, pair_us - us, us / pair_us);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  double seconds = 0.3;
  int i = 1;
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  if (all) ++i;
  if (argc > i && std::strchr(argv[i], '.') != nullptr) seconds = std::atof(argv[i++]);
  if (argc <= i || (argc - i) % 3 != 0) {
    std::fprintf(stderr, "usage: swiglu_gemm_bench [all] [SECONDS] M F K [M F K ...]\n");
    return 2;
  }
  for (; i < argc; i += 3) {
    compare({std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2])}, all, seconds);
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
