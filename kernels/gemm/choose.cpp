// Chooses the compiled variant for a product: the measured variant if there is a measurement,
// otherwise the fastest variant under a small cost model.
#include "kernels/gemm/choose.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/gemm/configs.h"
#include "kernels/gemm/measured_tiles.h"

namespace slimexx::kernels {
namespace {

// Fitted to times of bench/kernels/gemm_bench on an H200. k*Time: nanoseconds per K block of 64,
// and per operand row (kSharedTime, kIngestTime) or per 64 x 1 outputs (kMultiplyTime). k*Rate:
// bytes or operations per nanosecond.
constexpr double kMultiplyTime = 1.372;  // tensor cores
constexpr double kSharedTime = 0.5;      // shared memory, written and read
constexpr double kIngestTime = 0.581;    // loads into one multiprocessor
constexpr double kChainTime = 77.9;      // lower bound for a K block
constexpr double kClusterTime = 15;      // added to a K block by waiting for the cluster
constexpr double kLaunchTime = 2540;
constexpr double kMemoryRate = 4026;
constexpr double kPowerRate = 750000;
constexpr double kSmallTilePower = 8;     // extra power per (1 / rows + 1 / columns) of a tile
constexpr double kSharpness = 6.54;       // exponent of the smooth maximum of the three times
constexpr double kTwoBlocksShare = 0.99;  // factor on the time with two blocks per multiprocessor
constexpr double kUnevenExponent = 0.14;  // power of (most tiles / mean tiles) in memory time
constexpr double kPlainExcess = 1.011;    // factor for staged 64-row tiles in plain order
constexpr double kManyReadersExcess =
    1.035;                                // instead of 1.011 if four or more tiles read each weight
constexpr int64_t kTwoBlocksTokens = 16;  // above this, two blocks have too few stages each
constexpr int64_t kManyTokens = 1024;     // above this, the power limit decides

// For many tokens: fitted to runs of a quarter of a second, at the clock under the power limit.
constexpr double kSteadyPowerRate = 785500;
constexpr double kSteadyStore = 1.445;    // cost of storing a cooperative tile, in K blocks
constexpr double kSteadyPingPong = 1.01;  // factor for ping-pong tiles, which hide that cost
constexpr double kSteadyAlone = 1.01;     // factor for tiles without a cluster
constexpr int64_t kLeastPingPong = 4;     // ping-pong needs this many tiles per multiprocessor

// A swapped tile may use up to 56 rows fewer than listed here.
constexpr GemmConfig kConfigs[] = {
    staggered(in_cluster(plain_tile(128, 256), 2), 3),
    staggered(plain_tile(128, 256), 3),
    plain_tile(128, 224),
    plain_tile(128, 208),
    plain_tile(128, 192),
    plain_tile(128, 160),
    plain_tile(128, 144),
    plain_tile(128, 128),
    plain_tile(128, 112),
    plain_tile(128, 96),
    plain_tile(64, 24),
    plain_tile(64, 32),
    plain_tile(64, 40),
    plain_tile(64, 48),
    plain_tile(64, 64),
    plain_tile(64, 80),
    plain_tile(64, 96),
    plain_tile(64, 128),
    plain_tile(64, 144),
    plain_tile(64, 160),
    plain_tile(64, 192),
    plain_tile(64, 208),
    plain_tile(64, 256),
    plain_tile(192, 128),
    plain_tile(192, 192),
    swapped_tile(64, 32),
    swapped_tile(64, 48),
    swapped_tile(64, 64),
    swapped_tile(64, 96),
    swapped_tile(64, 128),
    swapped_tile(64, 160),
    swapped_tile(64, 192),
    swapped_tile(64, 256),
    swapped_tile(128, 96),
    swapped_tile(128, 128),
    swapped_tile(128, 160),
    swapped_tile(128, 192),
    swapped_tile(192, 128),
    swapped_tile(192, 160),
    swapped_tile(192, 192),
    two_per_sm(plain_tile(64, 24)),
    two_per_sm(plain_tile(64, 32)),
    two_per_sm(plain_tile(64, 40)),
    two_per_sm(plain_tile(64, 48)),
    two_per_sm(plain_tile(64, 80)),
    two_per_sm(plain_tile(64, 96)),
};

constexpr GemmConfig kPingPong[] = {ping_pong_tile(192), ping_pong_tile(160)};

int64_t count_token_tiles(const GemmConfig& c, int64_t m) {
  const int64_t room = c.swap_operands ? c.columns : c.rows;
  const int64_t tokens = c.tokens == 0 ? std::min(room, m) : c.tokens;
  return divide_up(divide_up(m, tokens), c.cluster) * c.cluster;
}

// Tiles that run at the same time, with `blocks` thread blocks per multiprocessor.
int64_t count_places(const GemmConfig& c, int64_t blocks) {
  return kMultiprocessors / c.cluster * c.cluster * blocks;
}

// Nanoseconds of the multiprocessor with the most tiles, bounded by tensor cores, shared memory,
// loads and the chain of K blocks.
double estimate_compute(const GemmConfig& c, int64_t tiles, int64_t blocks, double loaded,
                        int64_t k) {
  const double groups = (c.rows + 63) / 64;
  const double shared =
      std::max({kMultiplyTime * groups * c.columns,
                kSharedTime * (groups * (64 + c.columns) + loaded), kIngestTime * loaded});
  const double chain = kChainTime + (c.cluster > 1 ? kClusterTime : 0);
  const double step = std::max(static_cast<double>(blocks) * shared, chain);
  const int64_t waves = divide_up(tiles, count_places(c, blocks));
  return static_cast<double>(waves * divide_up(k, 64)) * step;
}

// Nanoseconds under the power limit, from the work of all tiles.
double estimate_power(const GemmConfig& c, int64_t tiles, int64_t m, int64_t n, int64_t k) {
  const double work = 2.0 * static_cast<double>(k);
  const double tile_power = kSmallTilePower * (1.0 / ((c.rows + 63) / 64 * 64) + 1.0 / c.columns);
  if (m <= kManyTokens) {
    return work * static_cast<double>(m) * static_cast<double>(n) / kPowerRate * (1 + tile_power);
  }
  const double whole = work * static_cast<double>(tiles * c.rows * c.columns);
  const double store = kSteadyStore / static_cast<double>(divide_up(k, 64));
  return whole / kSteadyPowerRate * (1 + tile_power) * (c.ping_pong ? kSteadyPingPong : 1 + store) *
         (c.cluster == 1 ? kSteadyAlone : 1);
}

// True for configurations whose speed the model overestimates, or that were not measured.
bool is_out_of_range(const GemmConfig& c, int64_t m, int64_t n) {
  if (c.blocks_per_sm > 1) return m > kTwoBlocksTokens;
  // Three warpgroups store too much at a time, and swapped tiles have no bands.
  if (c.rows > 128 || c.swap_operands) return m > kManyTokens;
  if (!c.ping_pong) return false;
  const int64_t tiles = divide_up(m, c.rows) * divide_up(n, c.columns);
  return m <= kManyTokens || tiles < kLeastPingPong * kMultiprocessors;
}

}  // namespace

double estimate_gemm_ns(const GemmConfig& c, int64_t m, int64_t n, int64_t k) {
  const int features = c.swap_operands ? c.rows : c.columns;
  const int64_t token_tiles = count_token_tiles(c, m);
  const int64_t tiles = token_tiles * divide_up(n, features);
  const int64_t most = divide_up(tiles, kMultiprocessors);
  const int64_t blocks = std::min<int64_t>(c.blocks_per_sm, most);
  const double loaded = features + static_cast<double>(m) / static_cast<double>(token_tiles);
  const double compute = estimate_compute(c, tiles, blocks, loaded, k);
  double memory = 2.0 * static_cast<double>(n * k + m * (n + k)) / kMemoryRate;
  if (blocks > 1) {
    const double even = static_cast<double>(tiles) / kMultiprocessors;
    memory *= std::pow(static_cast<double>(most) / even, kUnevenExponent);
  }
  const double power = estimate_power(c, tiles, m, n, k);
  double whole = std::pow(
      std::pow(compute, kSharpness) + std::pow(memory, kSharpness) + std::pow(power, kSharpness),
      1 / kSharpness);
  if (c.blocks_per_sm > 1) whole *= kTwoBlocksShare;
  const bool staged = !c.swap_operands && c.rows == 64 && c.columns > 64;
  const double excess = token_tiles >= 4 ? kManyReadersExcess : kPlainExcess;
  return (kLaunchTime + whole) * (staged ? excess : 1);
}

GemmConfig balance_gemm_tiles(GemmConfig c, int64_t m, int64_t n) {
  c.tokens = 0;
  const int64_t token_tiles = count_token_tiles(c, m);
  // With more tiles a partial last tile hardly matters, and full tiles are stored faster.
  if (token_tiles <= 8) c.tokens = static_cast<int>(divide_up(m, token_tiles));
  if (!c.swap_operands) return c;
  const int64_t places = count_places(c, c.blocks_per_sm);
  const int64_t waves = divide_up(divide_up(n, c.rows) * token_tiles, places);
  const int64_t feature_tiles = std::max<int64_t>(1, waves * places / token_tiles);
  const int64_t unit = 8 * c.cluster;
  const int64_t rows = divide_up(divide_up(n, feature_tiles), unit) * unit;
  const int64_t least = (c.rows - 1) / 64 * 64 + unit;
  c.rows = static_cast<int>(std::clamp<int64_t>(rows, least, c.rows));
  return c;
}

int count_gemm_configs() { return static_cast<int>(std::size(kConfigs) + std::size(kPingPong)); }

GemmConfig get_gemm_config(int index) {
  const int shared = static_cast<int>(std::size(kConfigs));
  return index < shared ? kConfigs[index] : kPingPong[index - shared];
}

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
  for (int i = 0; i < count_gemm_configs(); ++i) {
    const GemmConfig config = get_gemm_config(i);
    if (is_out_of_range(config, m, n)) continue;
    const GemmConfig balanced = balance_gemm_tiles(config, m, n);
    const double ns = estimate_gemm_ns(balanced, m, n, k);
    if (ns < best_ns) best_ns = ns, best = balanced;
  }
  return best;
}

}  // namespace slimexx::kernels
