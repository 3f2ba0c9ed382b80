// Chooses the variant of an FP8 product that is the fastest under a small cost model.
#include "kernels/float8/choose.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"

namespace slimexx::kernels {
namespace {

constexpr Fp8GemmConfig plain_tile(int rows, int columns, int cluster, int lead) {
  return {false, rows, columns, cluster, 16, lead, 0};
}
constexpr Fp8GemmConfig swapped_tile(int rows, int columns, int cluster = 1) {
  return {true, rows, columns, cluster, 1, 0, 0};
}

constexpr Fp8GemmConfig kConfigs[] = {
    plain_tile(192, 128, 2, 1), plain_tile(192, 128, 1, 1), plain_tile(128, 192, 2, 1),
    plain_tile(128, 128, 2, 1), plain_tile(128, 128, 1, 1), swapped_tile(64, 8),
    swapped_tile(64, 16),       swapped_tile(64, 24),       swapped_tile(64, 32),
    swapped_tile(64, 48),       swapped_tile(64, 64),       swapped_tile(128, 8),
    swapped_tile(128, 16),      swapped_tile(128, 24),      swapped_tile(128, 32),
    swapped_tile(128, 48),      swapped_tile(128, 64),      swapped_tile(128, 96),
    swapped_tile(128, 128),     swapped_tile(128, 128, 2),  swapped_tile(192, 8),
    swapped_tile(192, 16),      swapped_tile(192, 24),      swapped_tile(192, 32),
    swapped_tile(192, 48),      swapped_tile(192, 64),      swapped_tile(192, 96),
    swapped_tile(192, 128),     swapped_tile(192, 128, 2),
};

// Clocks per K block, and bytes per clock of 1.7 GHz. The time of one warpgroup's dependent
// instructions (kChain*, kAloneColumn) was measured alone; the other constants are estimates.
constexpr double kChainStart = 220;         // one warpgroup: kChainStart + kChainColumn * columns
constexpr double kChainColumn = 2.0;        // with two temporary accumulators
constexpr double kAloneColumn = 2.55;       // with one
constexpr double kTensorColumn = 2.1;       // per warpgroup and column
constexpr double kIngestBytes = 40;         // per clock, from L2, all multiprocessors loading
constexpr double kMemoryBytes = 2400;       // per clock, of weights
constexpr double kManyReadersExcess = 1.1;  // factor if several tiles read each weight
constexpr double kTileClocks = 900;         // stores that nothing hides

double estimate_clocks(const Fp8GemmConfig& c, int64_t m, int64_t n, int64_t k) {
  const int64_t of_rows = c.swap_operands ? n : m, of_columns = c.swap_operands ? m : n;
  const int64_t tiles = divide_up(of_rows, int64_t{c.rows}) *
                        divide_up(divide_up(of_columns, int64_t{c.columns}), int64_t{c.cluster});
  const auto waves = static_cast<double>(divide_up(tiles, kMultiprocessors / c.cluster));
  const int groups = (c.rows + 63) / 64;
  const bool two_temporaries = c.columns * groups <= 256 && (groups < 3 || c.columns <= 64);
  const double chain = kChainStart + (two_temporaries ? kChainColumn : kAloneColumn) * c.columns;
  const double tensor = kTensorColumn * c.columns * groups;
  const int64_t columns = c.swap_operands ? std::min<int64_t>(c.columns, m) : c.columns;
  const double bytes = 128.0 * (double(c.rows) / c.cluster + double(columns));
  const double block = std::max({chain, tensor, bytes / kIngestBytes});
  const double tile = double(k) / 128 * block + (groups == 3 ? 0.3 : 1) * kTileClocks;
  const bool read_once = c.swap_operands && c.columns >= m;
  const double memory = double(n * k) / kMemoryBytes * (read_once ? 1 : kManyReadersExcess);
  // A smooth maximum, because of two tiles that both keep up with memory the faster one is better.
  return std::hypot(waves * tile, memory);
}

bool suits_swiglu(const Fp8GemmConfig& c) {
  return c.swap_operands ? c.columns % 16 == 0 : c.columns == 128;
}

template <class Suits>
Fp8GemmConfig choose(int64_t m, int64_t n, int64_t k, int64_t row_step, const Suits& suits) {
  m = std::max<int64_t>(m, 1);
  Fp8GemmConfig best;
  double least = INFINITY;
  for (const Fp8GemmConfig& listed : kConfigs) {
    if (!suits(listed)) continue;
    if (listed.swap_operands && listed.columns >= std::max<int64_t>(2 * m, 24)) continue;
    const Fp8GemmConfig c = balance_float8_rows(listed, m, n, row_step);
    const double clocks = estimate_clocks(c, m, n, k);
    if (clocks >= least) continue;
    least = clocks;
    best = c;
  }
  return best;
}

}  // namespace

Fp8GemmConfig balance_float8_rows(Fp8GemmConfig c, int64_t m, int64_t n, int64_t row_step) {
  if (!c.swap_operands) return c;
  const int64_t clusters = kMultiprocessors / c.cluster;
  const int64_t beside = divide_up(divide_up(m, int64_t{c.columns}), int64_t{c.cluster});
  const int64_t waves = divide_up(divide_up(n, int64_t{c.rows}) * beside, clusters);
  const int64_t tiles = std::max<int64_t>(1, waves * clusters / beside);
  const int64_t step = row_step * c.cluster;
  const int64_t least = c.rows - 64 + step;
  c.rows = static_cast<int>(
      std::clamp<int64_t>(divide_up(divide_up(n, tiles), step) * step, least, c.rows));
  return c;
}

int count_fp8_gemm_configs() { return static_cast<int>(std::size(kConfigs)); }
Fp8GemmConfig get_fp8_gemm_config(int index) { return kConfigs[index]; }

Fp8GemmConfig choose_fp8_gemm_config(int64_t m, int64_t n, int64_t k) {
  return choose(m, n, k, kFloat8RowStep, [](const Fp8GemmConfig&) { return true; });
}

int count_fp8_gemm_swiglu_configs() {
  return static_cast<int>(std::ranges::count_if(kConfigs, suits_swiglu));
}
Fp8GemmConfig get_fp8_gemm_swiglu_config(int index) {
  const auto* config = std::ranges::find_if(kConfigs, suits_swiglu);
  for (; index > 0; --index) config = std::find_if(config + 1, std::end(kConfigs), suits_swiglu);
  return *config;
}

Fp8GemmConfig choose_fp8_gemm_swiglu_config(int64_t m, int64_t n, int64_t k) {
  return choose(m, n, k, kFloat8GateUpRowStep, suits_swiglu);
}

}  // namespace slimexx::kernels
