// Which compiled variant a product uses: the least estimated time under a small cost model.
#include <algorithm>
#include <iterator>

#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {
namespace {

// Fitted to the times of bench/kernels/gemm_bench on an H200 (about 900 of them, m from 1 to 8192,
// n from 4096 to 27392): nanoseconds, and bytes or operations per nanosecond.
constexpr int64_t kMultiprocessors = 132;
constexpr double kMultiplyRate = 6000;  // operations of one multiprocessor, 128 columns or more
constexpr double kNarrowMultiplyRate = 4950;
constexpr double kIngestRate = 106;  // into one multiprocessor
constexpr double kChainStep = 86;    // four dependent products of 16, whatever the width
constexpr double kClusterStep = 14;  // what waiting for a peer adds to it
constexpr double kMemoryRate = 4630;
constexpr double kWaveCost = 1450;    // before and after the chain of a tile
constexpr double kHiddenShare = 0.3;  // how much of the lesser of chain and memory still shows

// In swapped order `rows` is the most there can be.
constexpr GemmConfig kConfigs[] = {
    {false, 128, 256, 2, 16, 1, 3},
    {false, 128, 256, 1, 16},
    {false, 128, 128, 1, 16},
    {false, 128, 128, 2, 16},
    {true, 64, 8, 1},
    {true, 64, 16, 1},
    {true, 64, 32, 1},
    {true, 64, 32, 2},
    {true, 64, 64, 1},
    {true, 64, 64, 2},
    {true, 64, 64, 4},
    {true, 64, 128, 1},
    {true, 64, 128, 2},
    {true, 128, 8, 1},
    {true, 128, 16, 1},
    {true, 128, 32, 1},
    {true, 128, 64, 1},
    {true, 128, 64, 2},
    {true, 128, 128, 1},
    {true, 128, 128, 2},
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

double estimate_ns(const GemmConfig& c, int64_t m, int64_t n, int64_t k) {
  const int64_t row_tiles = divide_up(c.swap_operands ? n : m, c.rows * c.cluster) * c.cluster;
  const int64_t tiles = row_tiles * divide_up(c.swap_operands ? m : n, c.columns);
  const int64_t waves = divide_up(tiles, kMultiprocessors / c.cluster * c.cluster);
  const double rate = c.columns >= 128 ? kMultiplyRate : kNarrowMultiplyRate;
  const double multiplied_rows = c.rows > 64 ? 128 : 64;
  const double multiply = 128.0 * multiplied_rows * c.columns / rate;
  const double ingest = 128.0 * (c.rows + c.columns) / kIngestRate;
  const double chain = kChainStep + (c.cluster > 1 ? kClusterStep : 0);
  const double compute =
      static_cast<double>(waves * divide_up(k, 64)) * std::max({multiply, ingest, chain});
  const double memory = 2.0 * static_cast<double>(n * k + m * (n + k)) / kMemoryRate;
  return std::max(compute, memory) + kHiddenShare * std::min(compute, memory) +
         static_cast<double>(waves) * kWaveCost;
}

// Swapped order is for few tokens: those of one narrow tile, so that the weights are read once, or
// of two tiles. Beyond that it was not measured.
bool suits_tokens(const GemmConfig& c, int64_t m) {
  return !c.swap_operands || (c.columns >= std::min<int64_t>(m, 64) && m <= 2 * c.columns);
}

// The fewest waves, and then the fewest rows that need no more: all multiprocessors stream alike.
GemmConfig balance_rows(GemmConfig c, int64_t m, int64_t n) {
  if (!c.swap_operands) return c;
  const int64_t columns = divide_up(m, c.columns);
  const int64_t places = kMultiprocessors / c.cluster * c.cluster;
  const int64_t waves = divide_up(divide_up(n, c.rows) * columns, places);
  const int64_t row_tiles = std::max<int64_t>(1, waves * places / columns);
  const int64_t rows = divide_up(divide_up(n, row_tiles), 8) * 8;
  const int64_t least = c.rows > 64 ? 72 : 8;
  c.rows = static_cast<int>(std::clamp<int64_t>(rows, least, c.rows));
  return c;
}

}  // namespace

int count_gemm_configs() { return static_cast<int>(std::size(kConfigs)); }

GemmConfig get_gemm_config(int index) { return kConfigs[index]; }

GemmConfig choose_gemm_config(int64_t m, int64_t n, int64_t k) {
  m = std::max<int64_t>(m, 1);
  n = std::max<int64_t>(n, 1);
  GemmConfig best = kConfigs[0];
  double best_ns = estimate_ns(best, m, n, k);
  for (const GemmConfig& config : kConfigs) {
    if (!suits_tokens(config, m)) continue;
    const GemmConfig balanced = balance_rows(config, m, n);
    const double ns = estimate_ns(balanced, m, n, k);
    if (ns < best_ns) best_ns = ns, best = balanced;
  }
  return best;
}

}  // namespace slimexx::kernels
