// Checks the arguments of grouped FP8 products and chooses their tiles from the sizes alone.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/float8/choose.h"
#include "kernels/float8/grouped/variants.h"

namespace slimexx::kernels {
namespace {

constexpr Fp8GemmConfig kConfigs[] = {
    {false, 192, 128, 2, 1, 1},
    {false, 128, 192, 2, 1, 1},
    {false, 128, 128, 2, 1, 1},
    {false, 128, 128, 1, 1, 1},
    {true, 64, 8},
    {true, 64, 16},
    {true, 64, 32},
    {true, 64, 64},
    {true, 128, 8},
    {true, 128, 16},
    {true, 128, 32},
    {true, 128, 64},
};

constexpr int64_t kDistinctRows = 16;  // up to this many rows are assumed to have distinct experts

// Expected number of tiles of `tokens` rows for an expert that has `mean` rows on average, with a
// random router: the sum over j of the probability of more than j * tokens rows.
double estimate_tiles(double mean, int tokens) {
  if (mean > 4 * tokens) return mean / tokens + 0.5;
  double tiles = 1 - std::exp(-mean);
  for (int j = 1; j <= 8; ++j) {
    tiles += 0.5 * std::erfc((j * tokens + 0.5 - mean) / std::sqrt(2 * mean));
  }
  return tiles;
}

double estimate_clocks(const Fp8GemmConfig& c, const GroupedRows& rows, int64_t n, int64_t k) {
  const int64_t likely = std::max<int64_t>(1, rows.likely > 0 ? rows.likely : rows.rows);
  const bool distinct = likely <= std::min(kDistinctRows, rows.experts);
  const double mean = static_cast<double>(likely) / static_cast<double>(rows.experts);
  const int tokens = !c.swap_operands ? c.rows : c.tokens > 0 ? c.tokens : c.columns;
  const int64_t features = c.swap_operands ? c.rows : c.columns * c.cluster;
  const double experts_tiles =
      distinct ? static_cast<double>(likely)
               : static_cast<double>(rows.experts) * estimate_tiles(mean, tokens);
  const double tiles = experts_tiles * static_cast<double>(divide_up(n, features));
  const auto clusters = static_cast<double>(kMultiprocessors / c.cluster);
  // With random counts, the number of tiles is not exactly known: the last wave is half full on
  // average.
  const double waves =
      distinct ? std::ceil(tiles / clusters) : std::max(1.0, tiles / clusters + 0.5);
  const double used = distinct ? static_cast<double>(likely)
                               : static_cast<double>(rows.experts) * (1 - std::exp(-mean));
  const double tile = estimate_float8_tile(c, std::min<int64_t>(rows.rows, tokens), k);
  return estimate_float8_product(c, waves * tile, used * static_cast<double>(n * k),
                                 c.swap_operands);
}

const char* find_size_fault(const Fp8GroupedGemmArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 4;
  const GroupedRows& rows = a.rows;
  if (rows.experts < 1 || rows.experts > kMostExperts) {
    return "fp8_grouped_gemm: the number of experts must be from 1 to 384";
  }
  if (rows.rows < 0 || a.n <= 0 || a.k <= 0 || rows.rows > kMaxSize ||
      rows.experts * a.n > kMaxSize || a.k > kMaxSize) {
    return "fp8_grouped_gemm: rows must be at least 0, n and k at least 1; rows, experts * n and k "
           "< 2^29";
  }
  if (a.n % kFp8UnitRows != 0) return "fp8_grouped_gemm: n must be a multiple of 64";
  if (a.k % kFp8GroupColumns != 0) return "fp8_grouped_gemm: k must be a multiple of 128";
  if (a.one_x_row && rows.rows > rows.experts) {
    return "fp8_grouped_gemm: with one_x_row each expert may have at most one row";
  }
  if (a.x_scale_stride % 4 != 0 ||
      (a.x_scale_stride != 0 && a.x_scale_stride < (a.one_x_row ? 1 : rows.rows))) {
    return "fp8_grouped_gemm: x_scale_stride must be 0, or at least the rows of x and a multiple "
           "of 4";
  }
  return nullptr;
}

const char* find_bf16_fault(const Fp8GroupedGemmArgs& a) {
  if (!fp8_gemm_quantises(a.one_x_row ? 1 : a.rows.rows, a.k)) {
    return "fp8_grouped_gemm: x in bf16 is too large";
  }
  return has_aligned_rows(a.x, a.x_stride) && (a.x_stride == 0 || a.x_stride >= a.k)
             ? nullptr
             : "fp8_grouped_gemm: rows of x in bf16 must be 16-byte aligned, x_stride 0 or at "
               "least k";
}

const char* find_fault(const Fp8GroupedGemmArgs& a) {
  if (const char* fault = find_size_fault(a)) return fault;
  if (a.rows.rows == 0) return nullptr;
  if (const char* fault = a.x_is_bf16 ? find_bf16_fault(a) : nullptr) return fault;
  if (!is_given(a.x) || !is_given(a.w) || !is_given(a.y) ||
      !(a.x_is_bf16 || is_given(a.x_scales))) {
    return "fp8_grouped_gemm: x, its scales, w and y must be 16-byte aligned";
  }
  if (a.w_scales == nullptr || a.rows.offsets == nullptr) {
    return "fp8_grouped_gemm: the scales of w or the offsets are null";
  }
  return nullptr;
}

}  // namespace

int count_fp8_grouped_gemm_configs() { return static_cast<int>(std::size(kConfigs)); }
Fp8GemmConfig get_fp8_grouped_gemm_config(int index) { return kConfigs[index]; }

bool suits_fp8_grouped_swiglu(const Fp8GemmConfig& c) {
  return c.swap_operands ? c.columns % 16 == 0 && c.rows % kFloat8GateUpRowStep == 0
                         : c.columns == 128;
}

namespace {

Fp8GemmConfig choose(const Fp8GroupedGemmArgs& args, bool swiglu) {
  Fp8GemmConfig best;
  double least = INFINITY;
  const auto consider = [&](const Fp8GemmConfig& c) {
    if (swiglu && !suits_fp8_grouped_swiglu(c)) return;
    if (args.x_is_bf16 && !suits_fp8_bf16_input(c)) return;
    const double clocks = estimate_clocks(c, args.rows, args.n, args.k);
    if (clocks >= least) return;
    least = clocks;
    best = c;
  };
  for (Fp8GemmConfig c : kConfigs) {
    if (!c.swap_operands) {
      if (!args.one_x_row) consider(c);
      continue;
    }
    for (const int lowest = c.rows - 24; c.rows >= lowest; c.rows -= kFloat8RowStep) {
      c.tokens = 0;
      consider(c);
      c.tokens = c.columns * 3 / 4;  // the tile loads fewer rows of x
      consider(c);
    }
  }
  return best;
}

using Launcher = decltype(&launch_grouped_float8_plain);

const char* start(Launcher launch, const Fp8GroupedGemmArgs& args, const Fp8GemmConfig& config,
                  cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.one_x_row && !config.swap_operands) {
    return "fp8_grouped_gemm: one_x_row needs a swapped tile";
  }
  if (args.rows.rows == 0) return nullptr;
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return launch(args, config, sm_count, stream);
}

}  // namespace

Fp8GemmConfig choose_fp8_grouped_gemm_config(const Fp8GroupedGemmArgs& args) {
  return choose(args, false);
}
Fp8GemmConfig choose_fp8_grouped_swiglu_config(const Fp8GroupedGemmArgs& args) {
  return choose(args, true);
}

const char* launch_fp8_grouped_gemm(const Fp8GroupedGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_size_fault(args)) return fault;
  return launch_fp8_grouped_gemm(args, choose_fp8_grouped_gemm_config(args), stream);
}

const char* launch_fp8_grouped_gemm(const Fp8GroupedGemmArgs& args, const Fp8GemmConfig& config,
                                    cudaStream_t stream) {
  const auto launch = args.x_is_bf16         ? launch_grouped_float8_quantising
                      : config.swap_operands ? launch_grouped_float8_swapped
                                             : launch_grouped_float8_plain;
  return start(launch, args, config, stream);
}

const char* launch_fp8_grouped_gemm_swiglu(const Fp8GroupedGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_size_fault(args)) return fault;
  return launch_fp8_grouped_gemm_swiglu(args, choose_fp8_grouped_swiglu_config(args), stream);
}

const char* launch_fp8_grouped_gemm_swiglu(const Fp8GroupedGemmArgs& args,
                                           const Fp8GemmConfig& config, cudaStream_t stream) {
  if (args.n % (2 * kFp8UnitRows) != 0) {
    return "fp8_grouped_gemm_swiglu: n must be a multiple of 128";
  }
  if (args.output != GemmOutput::kBf16) return "fp8_grouped_gemm_swiglu: h is bf16";
  return start(
      args.x_is_bf16 ? launch_grouped_float8_swiglu_quantising : launch_grouped_float8_swiglu, args,
      config, stream);
}

}  // namespace slimexx::kernels
