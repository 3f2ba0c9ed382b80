// Times the FP8 products beside the bf16 product of the same sizes, in one process and in
// alternation, on weights that do not stay in L2; and the quantisers.
//
//   float8_bench [ms T] [best] [early] [swiglu] [M N K ...]
//
// Without sizes: the quantisers, then four products of an 8B model at 1 to 8192 rows.
//   ms T   milliseconds per measurement; 60 or more to reach the power limit
//   best   only the chosen configuration; otherwise all that suit the number of rows
//   early  every configuration with early launch; otherwise only the chosen one
//   swiglu the products with SwiGLU as epilogue; without sizes only those of gate and up
// Few rows also with x in bf16, launched early: "two launches" quantises x before the product,
// "bf16 x" within it.
// The bound of a product is the larger of its bytes at 4.28 TB/s and of its operations at 1979
// TFLOP/s (bf16: 989.5). 4.28 TB/s is the copy rate of an H200; the memory of an H100 has at most
// 3.35 TB/s, so what is limited by memory reaches at most 78 % of this bound there.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/kernels/replay.h"
#include "kernels/float8/choose.h"
#include "tests/kernels/float8/bf16_input.cuh"
#include "tests/kernels/gemm_case.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int64_t kRotatedBytes = int64_t{300} << 20;  // several times the size of the L2
constexpr double kMemoryRate = 4.28e6;                 // bytes per us
constexpr double kTensorRate = 1979e6;                 // FP8 operations per us

struct Settings {
  double ms = 0;  // per measurement; 0: depends on the number of rows
  bool best = false;
  bool early = false;
  bool swiglu = false;
};

void stop_on(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "%s\n", fault);
  std::exit(2);
}

std::string name_config(const Fp8GemmConfig& c) {
  char text[80];
  std::snprintf(text, sizeof(text), "%s %dx%d t%d c%d b%d l%d",
                c.swap_operands ? "swapped" : "plain", c.rows, c.columns, c.tokens, c.cluster,
                c.band, c.lead);
  return text;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[v.size() / 2] + v[(v.size() - 1) / 2]) / 2;
}

struct Line {
  std::string name;
  std::unique_ptr<Replay> replay;
  int element_bytes;  // of x and w
  bool early;
  std::vector<double> times = {};
};

// `columns`: columns of y.
void print_line(const Line& line, int64_t m, int64_t n, int64_t k, int64_t columns,
                double bf16_us) {
  const double us = median(line.times), operations = 2.0 * double(m) * double(n) * double(k);
  const double bytes = double(line.element_bytes) * double((m + n) * k) + 2.0 * double(m * columns);
  const double bound = std::max(bytes / kMemoryRate, operations * line.element_bytes / kTensorRate);
  std::printf("%ld %ld %ld %-28s %9.2f us %7.1f TFLOP/s %6.0f GB/s  bound %5.1f %%  of bf16 %.3f\n",
              long(m), long(n), long(k), line.name.c_str(), us, operations / us * 1e-6,
              bytes / us * 1e-3, 100 * bound / us, us / bf16_us);
}

// Configurations that suit m rows, the chosen one first.
std::vector<Fp8GemmConfig> list_configs(int64_t m, int64_t n, int64_t k, const Settings& settings) {
  const bool swiglu = settings.swiglu;
  std::vector<Fp8GemmConfig> list{swiglu ? choose_fp8_gemm_swiglu_config(m, n, k)
                                         : choose_fp8_gemm_config(m, n, k)};
  const int count = swiglu ? count_fp8_gemm_swiglu_configs() : count_fp8_gemm_configs();
  for (int i = 0; !settings.best && i < count; ++i) {
    const Fp8GemmConfig c = swiglu ? get_fp8_gemm_swiglu_config(i) : get_fp8_gemm_config(i);
    const int64_t tokens = c.swap_operands ? c.columns : c.rows;
    if (tokens >= std::max<int64_t>(2 * m, 65) || tokens * 8 < std::min<int64_t>(m, 512)) continue;
    list.push_back(balance_float8_rows(c, m, n, swiglu ? kFloat8GateUpRowStep : kFloat8RowStep));
    if (c.swap_operands) continue;
    for (const int lead : {0, 1, 2}) {
      if (lead == c.lead) continue;
      list.push_back(c);
      list.back().lead = lead;
    }
    for (const int band : {8, 16, 32}) {
      if (band == c.band) continue;
      list.push_back(c);
      list.back().band = band;
    }
  }
  return list;
}

// Configurations of products that quantise m rows of x, the chosen one first.
std::vector<Fp8GemmConfig> list_bf16_configs(int64_t m, int64_t n, int64_t k,
                                             const Settings& settings) {
  const bool swiglu = settings.swiglu;
  std::vector<Fp8GemmConfig> list;
  if (!fp8_gemm_quantises(m, k)) return list;
  list.push_back(swiglu ? choose_fp8_gemm_swiglu_config(m, n, k, true)
                        : choose_fp8_gemm_config(m, n, k, true));
  if (settings.best) return list;
  for (const Fp8GemmConfig& c : list_configs(m, n, k, settings)) {
    if (suits_fp8_bf16_input(c)) list.push_back(c);
  }
  return list;
}

int count_copies(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(kRotatedBytes / bytes + 1, 2, 32));
}

void time_product(int64_t m, int64_t n, int64_t k, const Settings& settings) {
  const int f8_copies = count_copies(n * k), bf16_copies = count_copies(n * k * 2);
  const Float8Operands o({.m = m, .n = n, .k = k, .copies = f8_copies});
  const GemmOperands plain({.m = m, .n = n, .k = k, .copies = bf16_copies});
  const DeviceArray<__nv_bfloat16> y(m * n);
  std::vector<Line> lines;
  const auto add_bf16 = [&](const char* name, bool overlap) {
    auto replay = std::make_unique<Replay>(bf16_copies, [&](int i, cudaStream_t stream) {
      GemmArgs args = plain.args(m, y.data());
      args.w = plain.w.data() + i * n * k;
      args.overlap_previous = overlap;
      stop_on(settings.swiglu ? launch_gemm_swiglu(args, stream) : launch_gemm(args, stream));
    });
    lines.push_back({name, std::move(replay), 2, overlap});
  };
  const auto add_f8 = [&](const std::string& name, const Fp8GemmConfig& c, bool overlap) {
    auto replay = std::make_unique<Replay>(f8_copies, [&](int i, cudaStream_t stream) {
      Fp8GemmArgs args = o.args(m, y.data(), i);
      args.overlap_previous = overlap;
      stop_on(settings.swiglu ? launch_fp8_gemm_swiglu(args, c, stream)
                              : launch_fp8_gemm(args, c, stream));
    });
    lines.push_back({name, std::move(replay), 1, overlap});
  };
  const DeviceArray<__nv_bfloat16> x(m * k);
  const DeviceArray<uint8_t> q(m * k);
  const DeviceArray<float> scales(k / 128 * fp8_scale_stride(m));
  fill_normal<<<2048, 256>>>(x.data(), x.count(), 44, 1.0f);
  // Products of x in bf16; two: launch_quantise_rows, then the product.
  const auto add_bf16_x = [&](const std::string& name, const Fp8GemmConfig& c, bool two) {
    auto replay = std::make_unique<Replay>(f8_copies, [&, c, two](int i, cudaStream_t stream) {
      Fp8GemmArgs args = o.args(m, y.data(), i);
      args.overlap_previous = true;
      args.x_is_bf16 = !two;
      args.x = two ? static_cast<const void*>(q.data()) : x.data();
      args.x_scales = scales.data();
      if (two) {
        stop_on(launch_quantise_rows(
            {.x = x.data(), .q = q.data(), .scales = scales.data(), .m = m, .k = k}, stream));
      }
      stop_on(settings.swiglu ? launch_fp8_gemm_swiglu(args, c, stream)
                              : launch_fp8_gemm(args, c, stream));
    });
    lines.push_back({name, std::move(replay), 1, true});
  };
  add_bf16("bf16", false);
  add_bf16("bf16 early", true);
  const std::vector<Fp8GemmConfig> list = list_configs(m, n, k, settings);
  add_f8("fp8 early (chosen)", list[0], true);
  if (m <= 64) add_bf16_x("two launches", list[0], true);
  for (const Fp8GemmConfig& c : list_bf16_configs(m, n, k, settings)) {
    add_bf16_x("bf16 x " + name_config(c), c, false);
  }
  for (const Fp8GemmConfig& c : list) add_f8(name_config(c), c, settings.early);
  const double target_us = settings.ms > 0 ? settings.ms * 1e3 : m > 1024 ? 15e3 : 1.5e3;
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < lines.size(); ++i) {
      Line& line = lines[round == 0 ? i : lines.size() - 1 - i];
      line.times.push_back(line.replay->measure(target_us));
    }
  }
  // Line 0 is bf16, line 1 bf16 launched early.
  for (const Line& line : lines) {
    print_line(line, m, n, k, settings.swiglu ? n / 2 : n, median(lines[line.early ? 1 : 0].times));
  }
  std::fflush(stdout);
}

void print_rate(const char* name, int64_t rows, int64_t k, double us, double bytes) {
  std::printf("%-24s %6ld x %6ld %9.2f us %6.0f GB/s  bound %5.1f %%\n", name, long(rows), long(k),
              us, bytes / us * 1e-3, 100 * bytes / kMemoryRate / us);
  std::fflush(stdout);
}

void time_rows(int64_t m, int64_t k, double target_us) {
  const int copies = count_copies(3 * m * k);
  const DeviceArray<__nv_bfloat16> x(copies * m * k);
  const DeviceArray<uint8_t> q(copies * m * k);
  const DeviceArray<float> scales(k / 128 * fp8_scale_stride(m));
  fill_normal<<<2048, 256>>>(x.data(), x.count(), 42, 1.0f);
  Replay replay(copies, [&](int i, cudaStream_t stream) {
    stop_on(launch_quantise_rows({.x = x.data() + i * m * k,
                                  .q = q.data() + i * m * k,
                                  .scales = scales.data(),
                                  .m = m,
                                  .k = k},
                                 stream));
  });
  print_rate("quantise_rows", m, k, replay.measure(target_us), double(m * k) * (3 + 4.0 / 128));
}

void time_blocks(int64_t rows, int64_t k, double target_us) {
  const int copies = count_copies(3 * rows * k);
  const DeviceArray<__nv_bfloat16> w(copies * rows * k);
  const DeviceArray<uint8_t> q(copies * rows * k);
  const DeviceArray<float> scales(rows / 64 * (k / 128));
  for (const auto rule : {tensor::F8ScaleRule::kPowerOfTwo, tensor::F8ScaleRule::kFloat}) {
    fill_normal<<<2048, 256>>>(w.data(), w.count(), 43, 0.02f);
    Replay replay(copies, [&](int i, cudaStream_t stream) {
      __nv_bfloat16* own = w.data() + i * rows * k;
      stop_on(launch_quantise_blocks({.w = own,
                                      .rounded = own,
                                      .q = q.data() + i * rows * k,
                                      .scales = scales.data(),
                                      .rows = rows,
                                      .k = k,
                                      .rule = rule},
                                     stream));
    });
    const bool power = rule == tensor::F8ScaleRule::kPowerOfTwo;
    print_rate(power ? "quantise_blocks 2^k" : "quantise_blocks float", rows, k,
               replay.measure(target_us), 5.0 * double(rows * k));
  }
}

int run(int argc, char** argv) {
  Settings settings;
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "best") == 0) {
      settings.best = true;
    } else if (std::strcmp(argv[i], "early") == 0) {
      settings.early = true;
    } else if (std::strcmp(argv[i], "swiglu") == 0) {
      settings.swiglu = true;
    } else if (std::strcmp(argv[i], "ms") == 0 && i + 1 < argc) {
      settings.ms = std::atof(argv[++i]);
    } else {
      sizes.push_back(std::atol(argv[i]));
    }
  }
  if (sizes.size() % 3 != 0 ||
      std::any_of(sizes.begin(), sizes.end(), [](int64_t s) { return s <= 0; })) {
    std::fprintf(stderr, "usage: float8_bench [ms T] [best] [early] [swiglu] [M N K ...]\n");
    return 2;
  }
  for (size_t i = 0; i < sizes.size(); i += 3) {
    time_product(sizes[i], sizes[i + 1], sizes[i + 2], settings);
  }
  if (!sizes.empty()) return 0;
  const double target_us = settings.ms > 0 ? settings.ms * 1e3 : 3e3;
  if (!settings.swiglu) {
    for (const int64_t m : {1, 256, 8192}) time_rows(m, 4096, target_us);
    time_rows(8192, 12288, target_us);
    time_blocks(24576, 4096, target_us);
  }
  for (const int64_t m : {1, 2, 4, 8, 16, 64, 256, 8192}) {
    constexpr int64_t kLayer[4][2] = {{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}};
    for (const auto& [n, k] : kLayer) {
      if (!settings.swiglu || n == 24576) time_product(m, n, k, settings);
    }
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
