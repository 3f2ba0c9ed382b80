// Which compiled variant a product uses: the least estimated time under a small cost model, but for
// products that were measured.
#include "kernels/gemm/choose.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/gemm/measured_tiles.h"

namespace slimexx::kernels {
namespace {

constexpr int64_t kMultiprocessors = 132;

// Fitted to the times of bench/kernels/gemm_bench on an H200. Nanoseconds per K block of 64: times
// rows of operands, or times products of 64 rows with one column; bytes and operations per
// nanosecond.
constexpr double kMultiplyTime = 1.302;  // tensor cores
constexpr double kSharedTime = 0.509;    // shared memory, written and read
constexpr double kIngestTime = 0.71;     // into one multiprocessor
constexpr double kChainTime = 102.6;     // four dependent products, whatever the width
constexpr double kClusterTime = 8.9;     // what waiting for a peer adds to a K block
constexpr double kTileTime = 1196;       // before and after the chain of a tile
constexpr double kLaunchTime = 2560;
constexpr double kMemoryRate = 3961;
constexpr double kPowerRate = 786500;
constexpr double kSharpness = 4.14;       // of the maximum over chain, memory and power
constexpr double kTwoBlocksShare = 0.97;  // of the time to stream weights with two blocks at a time
constexpr double kPlainExcess = 1.012;    // of 64-row tiles in plain order
constexpr double kManyReadersExcess = 1.065;  // the same with four or more readers of a weight

// In swapped order `rows` is the most there can be.
constexpr GemmConfig kConfigs[] = {
    {false, 128, 256, 2, 16, 1, 3}, {false, 128, 256, 1, 16, 1, 3}, {false, 128, 224, 1, 16, 1, 0},
    {false, 128, 208, 1, 16, 1, 0}, {false, 128, 192, 1, 16, 1, 0}, {false, 128, 160, 1, 16, 1, 0},
    {false, 128, 144, 1, 16, 1, 0}, {false, 128, 128, 1, 16, 1, 0}, {false, 128, 112, 1, 16, 1, 0},
    {false, 128, 96, 1, 16, 1, 0},  {false, 64, 40, 1, 16, 1, 0},   {false, 64, 48, 1, 16, 1, 0},
    {false, 64, 64, 1, 16, 1, 0},   {false, 64, 80, 1, 16, 1, 0},   {false, 64, 96, 1, 16, 1, 0},
    {false, 64, 128, 1, 16, 1, 0},  {false, 64, 160, 1, 16, 1, 0},  {false, 64, 192, 1, 16, 1, 0},
    {false, 64, 256, 1, 16, 1, 0},  {false, 192, 128, 1, 16, 1, 0}, {false, 192, 192, 1, 16, 1, 0},
    {true, 64, 32, 1, 1, 1, 0},     {true, 64, 48, 1, 1, 1, 0},     {true, 64, 64, 1, 1, 1, 0},
    {true, 64, 96, 1, 1, 1, 0},     {true, 64, 128, 1, 1, 1, 0},    {true, 64, 160, 1, 1, 1, 0},
    {true, 64, 192, 1, 1, 1, 0},    {true, 64, 256, 1, 1, 1, 0},    {true, 128, 96, 1, 1, 1, 0},
    {true, 128, 128, 1, 1, 1, 0},   {true, 128, 160, 1, 1, 1, 0},   {true, 128, 192, 1, 1, 1, 0},
    {true, 192, 128, 1, 1, 1, 0},   {true, 192, 160, 1, 1, 1, 0},   {true, 192, 192, 1, 1, 1, 0},
    {false, 64, 80, 1, 16, 2},      {false, 64, 96, 1, 16, 2},
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t count_token_tiles(const GemmConfig& c, int64_t m) {
  const int64_t room = c.swap_operands ? c.columns : c.rows;
  const int64_t tokens = c.tokens == 0 ? std::min(room, m) : c.tokens;
  return divide_up(divide_up(m, tokens), c.cluster) * c.cluster;
}

// Tiles that run at a time.
int64_t count_places(const GemmConfig& c) {
  return kMultiprocessors / c.cluster * c.cluster * c.blocks_per_sm;
}

}  // namespace

double estimate_gemm_ns(const GemmConfig& c, int64_t m, int64_t n, int64_t k) {
  const int features = c.swap_operands ? c.rows : c.columns;
  const int64_t token_tiles = count_token_tiles(c, m);
  const int64_t tiles = token_tiles * divide_up(n, features);
  const double waves = static_cast<double>(divide_up(tiles, count_places(c))) * c.blocks_per_sm;
  const double loaded = features + static_cast<double>(m) / static_cast<double>(token_tiles);
  const double groups = (c.rows + 63) / 64;
  const double step = std::max(
      {kMultiplyTime * groups * c.columns, kSharedTime * (groups * (64 + c.columns) + loaded),
       kIngestTime * loaded, kChainTime + (c.cluster > 1 ? kClusterTime : 0)});
  const double compute = waves * (static_cast<double>(divide_up(k, 64)) * step + kTileTime);
  const double memory = 2.0 * static_cast<double>(n * k + m * (n + k)) / kMemoryRate *
                        (c.blocks_per_sm > 1 ? kTwoBlocksShare : 1);
  const double power = 2.0 * static_cast<double>(m) * static_cast<double>(n * k) / kPowerRate;
  const double whole = std::pow(
      std::pow(compute, kSharpness) + std::pow(memory, kSharpness) + std::pow(power, kSharpness),
      1 / kSharpness);
  const bool narrow = !c.swap_operands && c.rows == 64 && c.blocks_per_sm == 1;
  const double excess = token_tiles >= 4 ? kManyReadersExcess : kPlainExcess;
  return (kLaunchTime + whole) * (narrow ? excess : 1);
}

GemmConfig balance_gemm_tiles(GemmConfig c, int64_t m, int64_t n) {
  c.tokens = 0;
  const int64_t token_tiles = count_token_tiles(c, m);
  // Among many tiles the last one hardly counts, and whole tiles are stored faster.
  if (token_tiles <= 8) c.tokens = static_cast<int>(divide_up(m, token_tiles));
  if (!c.swap_operands) return c;
  const int64_t places = count_places(c);
  const int64_t waves = divide_up(divide_up(n, c.rows) * token_tiles, places);
  const int64_t feature_tiles = std::max<int64_t>(1, waves * places / token_tiles);
  const int64_t unit = 8 * c.cluster;
  const int64_t rows = divide_up(divide_up(n, feature_tiles), unit) * unit;
  const int64_t least = (c.rows - 1) / 64 * 64 + unit;
  c.rows = static_cast<int>(std::clamp<int64_t>(rows, least, c.rows));
  return c;
}

int count_gemm_configs() { return static_cast<int>(std::size(kConfigs)); }

GemmConfig get_gemm_config(int index) { return kConfigs[index]; }

GemmConfig choose_gemm_config(int64_t m, int64_t n, int64_t k) {
  m = std::max<int64_t>(m, 1);
  n = std::max<int64_t>(n, 1);
  for (const MeasuredTile& tile : kMeasuredTiles) {
    if (tile.n == n && tile.k == k && tile.above < m && m <= tile.most) {
      return balance_gemm_tiles(tile.config, m, n);
    }
  }
  GemmConfig best = kConfigs[0];
  double best_ns = INFINITY;
  for (const GemmConfig& config : kConfigs) {
    const GemmConfig balanced = balance_gemm_tiles(config, m, n);
    const double ns = estimate_gemm_ns(balanced, m, n, k);
    if (ns < best_ns) best_ns = ns, best = balanced;
  }
  return best;
}

}  // namespace slimexx::kernels
