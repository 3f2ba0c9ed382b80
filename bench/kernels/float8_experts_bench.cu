// Times grouped FP8 products beside the bf16 grouped product of the same rows and sizes, in one
// process and in alternation.
//
//   float8_experts_bench [ms T] [all] [token] [ROWS EXPERTS N K ...]
//
// Without sizes: gate_up and down of Qwen3-30B-A3B, GLM-4.7-Flash and GLM-4.5 on 16 ranks, for
// training (8192 tokens) and for decode. Experts are chosen at random. The last lines are those of
// a single token.
//   ms T   milliseconds per measurement; 60 or more to reach the power limit
//   all    every compiled configuration; otherwise only the chosen one
//   token  only the lines of a single token
// Few rows also with x in bf16: "two launches" quantises x before the product, "bf16 x" within it.
// The bound of a product is the larger of its bytes at 4.28 TB/s and of its operations at 1979
// TFLOP/s (bf16: 989.5). Launches rotate over copies of the weights, so that these do not stay in
// L2.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/kernels/replay.h"
#include "tests/kernels/float8/bf16_input.cuh"
#include "tests/kernels/float8/grouped_operands.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr double kMemoryRate = 4.28e6;  // bytes per us
constexpr double kTensorRate = 1979e6;  // FP8 operations per us
constexpr int64_t kRotatedBytes = int64_t{300} << 20;

struct Settings {
  double ms = 0;  // per measurement; 0: depends on the number of rows
  bool all = false;
  bool token = false;
};

struct Sizes {
  const char* name;
  int64_t rows, experts, n, k;
  bool one_x_row = false, follows_product = false;  // see GroupedGemmArgs
};

void stop_on(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "%s\n", fault);
  std::exit(2);
}

std::string name_config(const Fp8GemmConfig& c) {
  char text[80];
  std::snprintf(text, sizeof(text), "%s %dx%d t%d c%d l%d", c.swap_operands ? "swapped" : "plain",
                c.rows, c.columns, c.tokens, c.cluster, c.lead);
  return text;
}

struct Line {
  std::string name;
  int element_bytes;  // of x and w
  size_t beside;      // index of the bf16 line to compare with
  std::unique_ptr<Replay> replay;
  std::vector<double> times = {};
  double median() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

// The bf16 operands, with one set of weights per copy.
struct PlainOperands {
  PlainOperands(const Sizes& s, int copies) : x(s.rows * s.k), w(copies * s.experts * s.n * s.k) {
    fill_normal<<<2048, 256>>>(x.data(), x.count(), 50, 1.0f);
    fill_normal<<<2048, 256>>>(w.data(), w.count(), 51, 0.02f);
  }
  DeviceArray<__nv_bfloat16> x, w;
};

std::vector<Fp8GemmConfig> list_configs(const Fp8GroupedGemmArgs& args, bool all) {
  std::vector<Fp8GemmConfig> list{choose_fp8_grouped_gemm_config(args)};
  for (int i = 0; all && i < count_fp8_grouped_gemm_configs(); ++i) {
    Fp8GemmConfig c = get_fp8_grouped_gemm_config(i);
    if (args.x_is_bf16 ? !suits_fp8_bf16_input(c) : args.one_x_row && !c.swap_operands) continue;
    list.push_back(c);
    for (c.lead = 0; !c.swap_operands && c.lead <= 2; c.lead += 2) list.push_back(c);
  }
  return list;
}

DeviceArray<uint8_t> copy_weights(const GroupedFloat8Operands& o, int copies) {
  const int64_t bytes = o.w.count();
  DeviceArray<uint8_t> w(copies * bytes);
  for (int i = 0; i < copies; ++i) {
    SLX_CUDA(cudaMemcpy(w.data() + i * bytes, o.w.data(), static_cast<size_t>(bytes),
                        cudaMemcpyDeviceToDevice));
  }
  return w;
}

int count_copies(int64_t weights) {
  return static_cast<int>(std::clamp<int64_t>(kRotatedBytes / weights + 1, 2, 8));
}

void time_product(const Sizes& s, const Settings& settings) {
  const int64_t weights = s.experts * s.n * s.k;
  const int copies = count_copies(weights);
  const GroupedFloat8Operands o({.rows = s.rows, .experts = s.experts, .n = s.n, .k = s.k});
  const DeviceArray<uint8_t> w = copy_weights(o, copies);
  const PlainOperands plain(s, copies);
  const DeviceArray<__nv_bfloat16> y(s.rows * s.n);
  Fp8GroupedGemmArgs product = o.grouped(y.data());
  product.one_x_row = s.one_x_row;
  product.follows_product = s.follows_product;
  std::vector<Line> lines;
  const auto add_bf16 = [&](const char* name, auto&& launch) {
    auto replay = std::make_unique<Replay>(copies, [&, launch](int i, cudaStream_t stream) {
      stop_on(launch(GroupedGemmArgs{.x = plain.x.data(),
                                     .w = plain.w.data() + i * weights,
                                     .y = y.data(),
                                     .rows = o.grouped(nullptr).rows,
                                     .n = s.n,
                                     .k = s.k,
                                     .one_x_row = s.one_x_row,
                                     .follows_product = s.follows_product},
                     stream));
    });
    lines.push_back({name, 2, lines.size(), std::move(replay)});
  };
  const auto add_f8 = [&](const std::string& name, size_t beside, auto&& launch) {
    auto replay = std::make_unique<Replay>(copies, [&, launch](int i, cudaStream_t stream) {
      Fp8GroupedGemmArgs args = product;
      args.w = w.data() + i * weights;
      stop_on(launch(args, stream));
    });
    lines.push_back({name, 1, beside, std::move(replay)});
  };
  const int64_t x_rows = s.one_x_row ? 1 : s.rows;
  const DeviceArray<uint8_t> q(x_rows * s.k);
  const DeviceArray<float> scales(s.k / 128 * fp8_scale_stride(x_rows));
  // `launch` with x in bf16; two: quantised by its own launch.
  const auto add_bf16_x = [&](const std::string& name, size_t beside, bool two, auto&& launch) {
    add_f8(name, beside, [&, two, launch](Fp8GroupedGemmArgs args, cudaStream_t stream) {
      args.x = two ? static_cast<const void*>(q.data()) : plain.x.data();
      args.x_scales = scales.data();
      args.x_is_bf16 = !two;
      const char* fault = !two ? nullptr
                               : launch_quantise_rows({.x = plain.x.data(),
                                                       .q = q.data(),
                                                       .scales = scales.data(),
                                                       .m = x_rows,
                                                       .k = s.k},
                                                      stream);
      return fault != nullptr ? fault : launch(args, stream);
    });
  };
  Fp8GroupedGemmArgs bf16_args = product;
  bf16_args.x_is_bf16 = true;
  const bool quantises = fp8_gemm_quantises(x_rows, s.k);
  add_bf16("bf16", launch_grouped_gemm);
  const std::vector<Fp8GemmConfig> list = list_configs(product, settings.all);
  for (size_t index = 0; index < list.size(); ++index) {
    const Fp8GemmConfig c = list[index];
    add_f8(name_config(c) + (index == 0 ? " (chosen)" : ""), 0,
           [c](const Fp8GroupedGemmArgs& args, cudaStream_t stream) {
             return launch_fp8_grouped_gemm(args, c, stream);
           });
  }
  using Args = Fp8GroupedGemmArgs;
  if (quantises) {
    add_bf16_x("two launches", 0, true, [c = list[0]](const Args& args, cudaStream_t stream) {
      return launch_fp8_grouped_gemm(args, c, stream);
    });
    for (const Fp8GemmConfig& c : list_configs(bf16_args, settings.all)) {
      add_bf16_x("bf16 x " + name_config(c), 0, false, [c](const Args& args, cudaStream_t stream) {
        return launch_fp8_grouped_gemm(args, c, stream);
      });
    }
  }
  if (s.n % 128 == 0) {
    const size_t beside = lines.size();
    add_bf16("bf16 SwiGLU", launch_grouped_gemm_swiglu);
    const Fp8GemmConfig c = choose_fp8_grouped_swiglu_config(product);
    add_f8(name_config(c) + " SwiGLU", beside,
           [c](const Fp8GroupedGemmArgs& args, cudaStream_t stream) {
             return launch_fp8_grouped_gemm_swiglu(args, c, stream);
           });
    if (quantises) {
      const Fp8GemmConfig in_bf16 = choose_fp8_grouped_swiglu_config(bf16_args);
      for (const bool two : {true, false}) {
        add_bf16_x((two ? "two launches" : "bf16 x " + name_config(in_bf16)) + " SwiGLU", beside,
                   two, [c = two ? c : in_bf16](const Args& args, cudaStream_t stream) {
                     return launch_fp8_grouped_gemm_swiglu(args, c, stream);
                   });
      }
    }
  }
  const double target_us = settings.ms > 0 ? settings.ms * 1e3 : s.rows > 4096 ? 20e3 : 3e3;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < lines.size(); ++i) {
      Line& line = lines[round % 2 == 0 ? i : lines.size() - 1 - i];
      line.times.push_back(line.replay->measure(target_us));
    }
  }
  int64_t used = 0;
  for (size_t e = 0; e + 1 < o.host_offsets.size(); ++e)
    used += o.host_offsets[e + 1] > o.host_offsets[e] ? 1 : 0;
  const double operations = 2.0 * double(s.rows) * double(s.n) * double(s.k);
  std::printf("%s: %ld rows%s, %ld experts (%ld with rows), n %ld k %ld\n", s.name, long(s.rows),
              s.one_x_row ? " of one token" : "", long(s.experts), long(used), long(s.n),
              long(s.k));
  for (Line& line : lines) {
    const double us = line.median();
    const double bytes =
        double(line.element_bytes) * (double(s.rows * s.k) + double(used * s.n * s.k)) +
        (line.name.ends_with("SwiGLU") ? 1.0 : 2.0) * double(s.rows * s.n);
    const double bound =
        std::max(bytes / kMemoryRate, operations * line.element_bytes / kTensorRate);
    std::printf("  %-32s %9.2f us %7.1f TFLOP/s %6.0f GB/s  bound %5.1f %%  of bf16 %.3f\n",
                line.name.c_str(), us, operations / us * 1e-6, bytes / us * 1e-3, 100 * bound / us,
                us / lines[line.beside].median());
  }
  std::fflush(stdout);
}

// The experts of one token: gate_up with SwiGLU, then down, which reads what gate_up wrote.
struct TokenExperts {
  explicit TokenExperts(const Sizes& s)
      : copies(count_copies(s.experts * s.n * s.k)),
        up({.rows = s.rows, .experts = s.experts, .n = s.n, .k = s.k, .spread = kSpread}),
        down({.rows = s.rows, .experts = s.experts, .n = s.k, .k = s.n / 2, .spread = kSpread}),
        up_w(copy_weights(up, copies)),
        down_w(copy_weights(down, copies)),
        plain_up(s, copies),
        plain_down({s.name, s.rows, s.experts, s.k, s.n / 2}, copies),
        h(s.rows * s.n / 2),
        y(s.rows * s.k) {}
  Fp8GroupedGemmArgs up_args(int i) const {
    Fp8GroupedGemmArgs a = up.grouped(h.data());
    a.x = plain_up.x.data();
    a.w = up_w.data() + i * up.w.count();
    a.x_is_bf16 = a.one_x_row = true;
    return a;
  }
  Fp8GroupedGemmArgs down_args(int i) const {
    Fp8GroupedGemmArgs a = down.grouped(y.data());
    a.x = h.data();
    a.w = down_w.data() + i * down.w.count();
    a.x_is_bf16 = a.follows_product = true;
    return a;
  }
  static GroupedGemmArgs plain(const Fp8GroupedGemmArgs& a, const PlainOperands& o, int i) {
    return {.x = a.x,
            .w = o.w.data() + i * a.rows.experts * a.n * a.k,
            .y = a.y,
            .rows = a.rows,
            .n = a.n,
            .k = a.k,
            .one_x_row = a.one_x_row,
            .follows_product = a.follows_product};
  }
  // The same product after a launch that quantises x.
  static Fp8GroupedGemmArgs quantise(const GroupedFloat8Operands& o, Fp8GroupedGemmArgs a,
                                     cudaStream_t stream) {
    stop_on(launch_quantise_rows({.x = a.x,
                                  .q = o.x.data(),
                                  .scales = o.x_scales.data(),
                                  .m = a.one_x_row ? 1 : a.rows.rows,
                                  .k = a.k},
                                 stream));
    a.x = o.x.data();
    a.x_scales = o.x_scales.data();
    a.x_is_bf16 = false;
    return a;
  }
  static constexpr ExpertRows kSpread = ExpertRows::kDistinct;
  int copies;
  GroupedFloat8Operands up, down;
  DeviceArray<uint8_t> up_w, down_w;
  PlainOperands plain_up, plain_down;
  DeviceArray<__nv_bfloat16> h, y;
};

// `s`: the sizes of gate_up.
void time_token(const Sizes& s, const Settings& settings) {
  const TokenExperts o(s);
  std::vector<std::pair<std::string, std::unique_ptr<Replay>>> lines;
  const auto add = [&](const std::string& name, const Launch& launch) {
    lines.emplace_back(name, std::make_unique<Replay>(o.copies, launch));
  };
  add("bf16", [&](int i, cudaStream_t stream) {
    stop_on(launch_grouped_gemm_swiglu(o.plain(o.up_args(i), o.plain_up, i), stream));
    stop_on(launch_grouped_gemm(o.plain(o.down_args(i), o.plain_down, i), stream));
  });
  add("four launches", [&](int i, cudaStream_t stream) {
    stop_on(launch_fp8_grouped_gemm_swiglu(o.quantise(o.up, o.up_args(i), stream), stream));
    stop_on(launch_fp8_grouped_gemm(o.quantise(o.down, o.down_args(i), stream), stream));
  });
  const Fp8GemmConfig chosen_up = choose_fp8_grouped_swiglu_config(o.up_args(0));
  const Fp8GemmConfig chosen_down = choose_fp8_grouped_gemm_config(o.down_args(0));
  for (const Fp8GemmConfig& c : {chosen_up, Fp8GemmConfig{true, 64, 16}}) {
    for (const Fp8GemmConfig& d : {chosen_down, Fp8GemmConfig{true, 64, 8}}) {
      add("bf16 x " + name_config(c) + ", " + name_config(d),
          [&, c, d](int i, cudaStream_t stream) {
            stop_on(launch_fp8_grouped_gemm_swiglu(o.up_args(i), c, stream));
            stop_on(launch_fp8_grouped_gemm(o.down_args(i), d, stream));
          });
    }
  }
  std::printf("%s, SwiGLU, down: one token, %ld of %ld experts\n", s.name, long(s.rows),
              long(s.experts));
  for (const auto& [name, replay] : lines) {
    std::printf("  %-52s %9.2f us\n", name.c_str(),
                replay->measure(settings.ms > 0 ? settings.ms * 1e3 : 10e3));
  }
  std::fflush(stdout);
}

void time_models(const Settings& settings) {
  constexpr Sizes kTraining[] = {{"Qwen3-30B-A3B gate_up", 65536, 128, 1536, 2048},
                                 {"Qwen3-30B-A3B down", 65536, 128, 2048, 768},
                                 {"GLM-4.7-Flash gate_up", 32768, 64, 3072, 2048},
                                 {"GLM-4.7-Flash down", 32768, 64, 2048, 1536},
                                 {"GLM-4.5 on 16 ranks gate_up", 65536, 10, 3072, 5120},
                                 {"GLM-4.5 on 16 ranks down", 65536, 10, 5120, 1536}};
  if (!settings.token) {
    for (const Sizes& s : kTraining) time_product(s, settings);
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 48, 64}) {
      for (Sizes s : kTraining) {
        s.rows = rows * s.experts;
        time_product(s, settings);
      }
    }
  }
  for (Sizes s : kTraining) {  // one of the 8192 tokens
    s.rows /= 8192;
    s.one_x_row = std::strstr(s.name, "gate_up") != nullptr;
    s.follows_product = !s.one_x_row;
    time_product(s, settings);
    if (s.one_x_row) time_token(s, settings);
  }
}

int run(int argc, char** argv) {
  Settings settings;
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "all") == 0) {
      settings.all = true;
    } else if (std::strcmp(argv[i], "token") == 0) {
      settings.token = true;
    } else if (std::strcmp(argv[i], "ms") == 0 && i + 1 < argc) {
      settings.ms = std::atof(argv[++i]);
    } else {
      sizes.push_back(std::atol(argv[i]));
    }
  }
  if (sizes.size() % 4 != 0 ||
      std::any_of(sizes.begin(), sizes.end(), [](int64_t s) { return s <= 0; })) {
    std::fprintf(stderr,
                 "usage: float8_experts_bench [ms T] [all] [token] [ROWS EXPERTS N K ...]\n");
    return 2;
  }
  for (size_t i = 0; i < sizes.size(); i += 4) {
    time_product({"product", sizes[i], sizes[i + 1], sizes[i + 2], sizes[i + 3]}, settings);
  }
  if (sizes.empty()) time_models(settings);
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
