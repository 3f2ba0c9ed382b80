// Times the GEMM variants and cuBLASLt in one process, on weights that do not stay in L2.
//
//   gemm_bench sweep  M N K   the cost model's best variants, in alternation
//   gemm_bench pair   M N K   the chosen variant and cuBLASLt's best, in alternation
//   gemm_bench once   M N K   one launch of each variant of `only`, for a profiler
//   gemm_bench bf16 | f32     output type of the products that follow
//   gemm_bench ms T           milliseconds per measurement; 60 or more to reach the power limit
//   gemm_bench only V ... M   these variants instead of the cost model's, by their printed names;
//                             t0 means balanced tiles; `only` without names resets the list
//   several triples may follow one word; a word may appear again
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/kernels/cublas.h"
#include "bench/kernels/replay.h"
#include "kernels/gemm/choose.h"
#include "slimexx/kernels/gemm.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_case.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int64_t kRotatedBytes = int64_t{300} << 20;  // several times the L2

struct Operands : GemmOperands {
  Operands(int64_t rows, int64_t features, int64_t depth, GemmOutput type)
      : GemmOperands(
            {.m = rows,
             .n = features,
             .k = depth,
             .copies = std::clamp<int64_t>(kRotatedBytes / (features * depth * 2) + 1, 2, 32)}),
        output(type),
        y(m * n * (output == GemmOutput::kF32 ? 4 : 2)) {}
  WeightCopies weights() const { return {w.data(), n * k, static_cast<int>(copies)}; }
  CublasProduct product() const {
    return CublasProduct::forward(m, n, k, output == GemmOutput::kF32 ? CUDA_R_32F : CUDA_R_16BF);
  }
  GemmOutput output;
  DeviceArray<uint8_t> y;
};

void launch_ours(const Operands& o, const GemmConfig& c, bool overlap, const __nv_bfloat16* w,
                 cudaStream_t stream) {
  GemmArgs args = o.args(o.m, o.y.data());
  args.w = w;
  args.overlap_previous = overlap;
  args.output = o.output;
  if (const char* fault = launch_gemm(args, c, stream)) {
    std::fprintf(stderr, "%s\n", fault);
    std::exit(2);
  }
}

std::string name_config(const GemmConfig& c) {
  char text[80];
  const char kind = c.swap_operands ? 's' : c.ping_pong ? 'a' : 'p';
  std::snprintf(text, sizeof(text), "%c%dx%dt%dc%d/%db%dl%d", kind, c.rows, c.columns, c.tokens,
                c.cluster, c.blocks_per_sm, c.band, c.lead);
  return text;
}

// Parses a printed name; returns false if `name` is not one.
bool read_config(const char* name, GemmConfig* c) {
  char kind = 0;
  *c = {};
  if (std::sscanf(name, "%c%dx%dt%dc%d/%db%dl%d", &kind, &c->rows, &c->columns, &c->tokens,
                  &c->cluster, &c->blocks_per_sm, &c->band, &c->lead) != 8) {
    return false;
  }
  c->swap_operands = kind == 's';
  c->ping_pong = kind == 'a';
  return kind == 's' || kind == 'a' || kind == 'p';
}

void print_line(const char* kind, const Operands& o, const std::string& name, double us) {
  std::printf("%s %ld %ld %ld %-24s %9.2f us %6.1f TFLOP/s %6.0f GB/s of weights\n", kind,
              long(o.m), long(o.n), long(o.k), name.c_str(), us, o.operations() / us * 1e-6,
              double(o.n * o.k * 2) / us * 1e-3);
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[v.size() / 2] + v[(v.size() - 1) / 2]) / 2;
}

// The 30 candidates with the lowest estimated cost: variants with full and with balanced tiles, and
// with other leads.
std::vector<GemmConfig> list_candidates(const Operands& o) {
  std::vector<GemmConfig> list;
  for (int i = 0; i < count_gemm_configs(); ++i) {
    const GemmConfig whole = get_gemm_config(i);
    const GemmConfig balanced = balance_gemm_tiles(whole, o.m, o.n);
    const int64_t room = whole.swap_operands ? whole.columns : whole.rows;
    if (room > 64 && room >= 2 * o.m) continue;
    list.push_back(balanced);
    if (whole.swap_operands && balanced.rows != whole.rows) {
      list.push_back(balanced);
      list.back().rows = whole.rows;
    }
    if (whole.rows != 128 || o.n * o.m < (int64_t{1} << 24)) continue;
    for (const int lead : {0, 2, 4}) {
      if (lead == whole.lead) continue;
      list.push_back(balanced);
      list.back().lead = lead;
    }
  }
  const auto cost = [&o](const GemmConfig& c) { return estimate_gemm_ns(c, o.m, o.n, o.k); };
  std::stable_sort(list.begin(), list.end(),
                   [&](const GemmConfig& a, const GemmConfig& b) { return cost(a) < cost(b); });
  list.resize(std::min<size_t>(list.size(), 30));
  return list;
}

std::vector<GemmConfig> balance_tiles(std::vector<GemmConfig> list, const Operands& o) {
  for (GemmConfig& c : list) {
    if (c.tokens == 0) c = balance_gemm_tiles(c, o.m, o.n);
  }
  return list;
}

WeightLaunch launch_theirs(const Cublas& cublas, const Operands& o, int choice) {
  return [&cublas, &o, choice](const __nv_bfloat16* w, cudaStream_t stream) {
    cublas.launch(choice, w, o.x.data(), o.y.data(), 0, stream);
  };
}

// The two fastest of cuBLASLt's suggestions, fastest first.
std::vector<int> find_best(const Cublas& cublas, const Operands& o, double target_us) {
  std::vector<std::pair<double, int>> times;
  for (int i = 0; i < cublas.count(); ++i) {
    Replay replay(o.weights(), launch_theirs(cublas, o, i));
    times.emplace_back(replay.measure(target_us), i);
  }
  std::sort(times.begin(), times.end());
  std::vector<int> best;
  for (size_t i = 0; i < std::min<size_t>(2, times.size()); ++i) best.push_back(times[i].second);
  return best;
}

struct Settings {
  double ms = 0;  // per measurement; 0: depends on the number of rows
  std::vector<GemmConfig> only;
};

// Launches each variant once, in the order of the list, for a profiler.
void launch_once(const Operands& o, const Settings& settings) {
  for (const GemmConfig& c : balance_tiles(settings.only, o)) {
    launch_ours(o, c, false, o.w.data(), nullptr);
    std::printf("once %ld %ld %ld %s\n", long(o.m), long(o.n), long(o.k), name_config(c).c_str());
  }
  SLX_CUDA(cudaDeviceSynchronize());
}

// Times all candidates in alternation, forwards and backwards, so that the device's temperature and
// clock affect all of them equally.
void sweep(const Operands& o, const Settings& settings) {
  const double target_us = settings.ms > 0 ? settings.ms * 1e3 : o.m > 1024 ? 6e3 : 0.8e3;
  const std::vector<GemmConfig> list =
      settings.only.empty() ? list_candidates(o) : balance_tiles(settings.only, o);
  std::vector<std::unique_ptr<Replay>> replays;
  for (const GemmConfig& c : list) {
    replays.push_back(std::make_unique<Replay>(
        o.weights(),
        [&](const __nv_bfloat16* w, cudaStream_t s) { launch_ours(o, c, false, w, s); }));
  }
  const Cublas cublas(o.product());
  const std::vector<int> choices = find_best(cublas, o, target_us / 4);
  for (const int choice : choices) {
    replays.push_back(std::make_unique<Replay>(o.weights(), launch_theirs(cublas, o, choice)));
  }
  std::vector<std::vector<double>> times(replays.size());
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < replays.size(); ++i) {
      const size_t at = round == 0 ? i : replays.size() - 1 - i;
      times[at].push_back(replays[at]->measure(target_us));
    }
  }
  for (size_t i = 0; i < replays.size(); ++i) {
    const bool ours = i < list.size();
    print_line(ours ? "sweep" : "cublasLt", o,
               ours ? name_config(list[i]) : cublas.name(choices[i - list.size()]),
               median(times[i]));
  }
}

void pair(const Operands& o, const Settings& settings) {
  const Cublas cublas(o.product());
  const GemmConfig chosen = choose_gemm_config(o.m, o.n, o.k);
  const double target_us = settings.ms > 0 ? settings.ms * 1e3 : o.m > 1024 ? 40e3 : 4e3;
  const auto ours_as = [&](bool overlap) {
    return [&o, chosen, overlap](const __nv_bfloat16* w, cudaStream_t s) {
      launch_ours(o, chosen, overlap, w, s);
    };
  };
  Replay ours(o.weights(), ours_as(false));
  Replay early(o.weights(), ours_as(true));
  const int best = find_best(cublas, o, target_us / 4).front();
  Replay theirs(o.weights(), launch_theirs(cublas, o, best));
  std::vector<double> a, b, c;
  for (int round = 0; round < 5; ++round) {
    a.push_back(ours.measure(target_us));
    b.push_back(theirs.measure(target_us));
    c.push_back(early.measure(target_us));
  }
  print_line("ours", o, name_config(chosen), median(a));
  print_line("early", o, name_config(chosen), median(c));
  print_line("cublasLt", o, cublas.name(best), median(b));
  std::printf("ratio %ld %ld %ld %.3f, overlapped %.3f\n", long(o.m), long(o.n), long(o.k),
              median(b) / median(a), median(b) / median(c));
}

int run(int argc, char** argv) {
  std::string mode = "pair";
  GemmOutput output = GemmOutput::kBf16;
  Settings settings;
  for (int i = 1; i < argc;) {
    if (std::strcmp(argv[i], "sweep") == 0 || std::strcmp(argv[i], "pair") == 0 ||
        std::strcmp(argv[i], "once") == 0) {
      mode = argv[i++];
      continue;
    }
    if (std::strcmp(argv[i], "f32") == 0 || std::strcmp(argv[i], "bf16") == 0) {
      output = argv[i++][0] == 'f' ? GemmOutput::kF32 : GemmOutput::kBf16;
      continue;
    }
    if (std::strcmp(argv[i], "ms") == 0 && i + 1 < argc) {
      settings.ms = std::atof(argv[i + 1]);
      i += 2;
      continue;
    }
    if (std::strcmp(argv[i], "only") == 0) {
      settings.only.clear();
      GemmConfig c;
      while (++i < argc && read_config(argv[i], &c)) settings.only.push_back(c);
      continue;
    }
    if (i + 2 >= argc) {
      std::fprintf(stderr,
                   "usage: gemm_bench {sweep|pair|once|bf16|f32|ms T|only V ...} M N K [...]\n");
      return 2;
    }
    const Operands o(std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2]), output);
    if (mode == "once") {
      launch_once(o, settings);
    } else {
      mode == "sweep" ? sweep(o, settings) : pair(o, settings);
    }
    std::fflush(stdout);
    i += 3;
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
