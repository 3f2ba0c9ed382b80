// Chooses the variant of an FP8 product that is the fastest under a small cost model.
#include "kernels/float8/choose.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"

namespace slimexx::kernels {
namespace {

constexpr Fp8GemmConfig plain_tile(int rows, int columns, int cluster = 1, int band = 16,
                                   int lead = 0) {
  return {false, rows, columns, cluster, band, lead, 0};
}
constexpr Fp8GemmConfig swapped_tile(int rows, int columns, int cluster = 1) {
  return {true, rows, columns, cluster, 1, 0, 0};
}

constexpr Fp8GemmConfig kConfigs[] = {
    plain_tile(192, 128, 2), plain_tile(192, 128),   plain_tile(128, 192, 2, 32, 1),
    plain_tile(128, 128, 2), plain_tile(128, 128),   plain_tile(128, 96),
    plain_tile(128, 64),     plain_tile(64, 192),    plain_tile(64, 128),
    swapped_tile(64, 8),     swapped_tile(64, 16),   swapped_tile(64, 24),
    swapped_tile(64, 32),    swapped_tile(64, 48),   swapped_tile(64, 64),
    swapped_tile(128, 8),    swapped_tile(128, 16),  swapped_tile(128, 24),
    swapped_tile(128, 32),   swapped_tile(128, 48),  swapped_tile(128, 64),
    swapped_tile(128, 96),   swapped_tile(128, 128), swapped_tile(128, 128, 2),
    swapped_tile(192, 8),    swapped_tile(192, 16),  swapped_tile(192, 24),
    swapped_tile(192, 32),   swapped_tile(192, 48),  swapped_tile(192, 64),
    swapped_tile(192, 96),   swapped_tile(192, 128), swapped_tile(192, 128, 2),
};

// Fitted to 336 measured times of four products at 1, 16, 64, 256 and 8192 rows on an H100, with a
// root mean square error of 7 % (with a launch of 1.3 us, and a factor of 1.2 at 8192 rows for the
// clock under the power limit). The unit is clocks of 1.755 GHz; clocks of a tile are per K block.
// Not in the fit: plain tiles of 64 rows or of 64 or 96 columns, and the savings of kBatch
// (tile.cuh). Set by hand, so that the best tile of 8192 rows comes first: kAloneColumn,
// kIngestBytes, kClusterClocks.
constexpr double kChainStart = 325;          // one warpgroup: kChainStart + chain * columns
constexpr double kChainColumn = 0.55;        // with two temporary accumulators
constexpr double kAloneColumn = 2.2;         // with one temporary accumulator
constexpr double kSharedFactor = 1.09;       // factor: shared memory at 128 bytes per clock
constexpr double kIngestBytes = 1500;        // bytes per clock of loads from L2; rarely the limit
constexpr double kColumnClocks = 25;         // start of a tile and its stores, per column
constexpr double kClusterClocks = 2000;      // added once per product in a cluster
constexpr double kMemoryBytes = 1860;        // bytes of weights per clock
constexpr double kManyReadersExcess = 1.08;  // factor if several tiles read each weight; by hand

}  // namespace

double estimate_float8_tile(const Fp8GemmConfig& c, int64_t tokens, int64_t k) {
  const int groups = (c.rows + 63) / 64;
  const bool two_temporaries =
      c.columns * groups <= 256 && c.columns <= 128 && (groups < 3 || c.columns <= 64);
  const double chain = kChainStart + (two_temporaries ? kChainColumn : kAloneColumn) * c.columns;
  const int64_t columns = c.swap_operands ? std::min<int64_t>(c.columns, tokens) : c.columns;
  // Shared memory traffic in units of 128 bytes: reads of four wgmma per warpgroup, writes of TMA
  // and, in swapped order, reads of the columns' scales.
  const double shared = 4.0 * groups * (16 + c.columns / 4.0) + double(c.rows) + double(columns) +
                        (c.swap_operands ? groups * c.columns / 2.0 : 0.0);
  // Smooth maxima: if two tiles have the same limit, the tile that is otherwise faster is better.
  const double busy = kSharedFactor * shared;
  const double block = std::sqrt(std::hypot(chain * chain, busy * busy)) +
                       128 * (double(c.rows) / c.cluster + double(columns)) / kIngestBytes;
  return double(k) / 128 * block + kColumnClocks * c.columns;
}

double estimate_float8_product(const Fp8GemmConfig& c, double tile_clocks, double weight_bytes,
                               bool read_once) {
  const double memory = weight_bytes / kMemoryBytes * (read_once ? 1 : kManyReadersExcess);
  return std::hypot(tile_clocks, memory) + kClusterClocks * (c.cluster - 1);
}

namespace {

double estimate_clocks(const Fp8GemmConfig& c, int64_t m, int64_t n, int64_t k) {
  const int64_t of_rows = c.swap_operands ? n : m, of_columns = c.swap_operands ? m : n;
  const int64_t tiles = divide_up(of_rows, int64_t{c.rows}) *
                        divide_up(divide_up(of_columns, int64_t{c.columns}), int64_t{c.cluster});
  const auto waves = static_cast<double>(divide_up(tiles, kMultiprocessors / c.cluster));
  const bool read_once = c.swap_operands && c.columns >= m;
  return estimate_float8_product(c, waves * estimate_float8_tile(c, m, k), double(n * k),
                                 read_once);
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

bool suits_fp8_bf16_input(const Fp8GemmConfig& c) {
  return c.swap_operands && c.cluster == 1 && c.columns <= kFp8MostInputRows;
}

Fp8GemmConfig choose_fp8_gemm_config(int64_t m, int64_t n, int64_t k, bool x_is_bf16) {
  return choose(m, n, k, kFloat8RowStep, [x_is_bf16](const Fp8GemmConfig& c) {
    return !x_is_bf16 || suits_fp8_bf16_input(c);
  });
}

int count_fp8_gemm_swiglu_configs() {
  return static_cast<int>(std::ranges::count_if(kConfigs, suits_swiglu));
}
Fp8GemmConfig get_fp8_gemm_swiglu_config(int index) {
  const auto* config = std::ranges::find_if(kConfigs, suits_swiglu);
  for (; index > 0; --index) config = std::find_if(config + 1, std::end(kConfigs), suits_swiglu);
  return *config;
}

Fp8GemmConfig choose_fp8_gemm_swiglu_config(int64_t m, int64_t n, int64_t k, bool x_is_bf16) {
  return choose(m, n, k, kFloat8GateUpRowStep, [x_is_bf16](const Fp8GemmConfig& c) {
    return suits_swiglu(c) && (!x_is_bf16 || suits_fp8_bf16_input(c));
  });
}

}  // namespace slimexx::kernels
