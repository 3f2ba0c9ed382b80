// Checks the arguments of a product with SwiGLU as epilogue, chooses its tile and launches the
// variant.
#include <algorithm>
#include <cmath>

#include "kernels/common/device.h"
#include "kernels/gemm/choose.h"
#include "kernels/gemm/swiglu/swiglu_launch.cuh"

namespace slimexx::kernels {
namespace {

const char* find_fault(const GemmArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 2;
  if (a.m < 0 || a.n <= 0 || a.k <= 0 || a.m > kMaxSize || a.n > kMaxSize || a.k > kMaxSize) {
    return "gemm_swiglu: m must be at least 0, n and k at least 1, all < 2^30";
  }
  if (!fuses_swiglu(a.n, a.k, a.w)) {
    return "gemm_swiglu: n must be a multiple of 16, k of 64, w 16-byte aligned";
  }
  if (a.output != GemmOutput::kBf16) return "gemm_swiglu: the output must be bf16";
  if (a.y_stride != 0 && (a.y_stride < a.n / 2 || a.y_stride % 8 != 0)) {
    return "gemm_swiglu: y_stride must be 0 or a multiple of 8, at least n / 2";
  }
  if (a.m == 0) return nullptr;
  if (a.x == nullptr || a.w == nullptr || a.y == nullptr) return "gemm_swiglu: x, w or y is null";
  if (!is_aligned(a.x, 16) || !is_aligned(a.y, 16))
    return "gemm_swiglu: x and y must be 16-byte aligned";
  if (!is_aligned(a.bias, 4)) return "gemm_swiglu: bias must be 4-byte aligned";
  return nullptr;
}

template <class Tile>
GemmConfig config_of() {
  GemmConfig c;
  c.swap_operands = Tile::kSwap;
  c.rows = Tile::kRows;
  c.columns = Tile::kColumns;
  c.cluster = Tile::kCluster;
  c.band = Tile::kSwap ? 1 : 16;
  c.lead = !Tile::kSwap && Tile::kGroups == 2 && Tile::kColumns == 256 ? 3 : 0;
  return c;
}

template <class... Tiles>
constexpr int count_tiles(TileList<Tiles...>) {
  return sizeof...(Tiles);
}

template <class... Tiles>
GemmConfig get_config(TileList<Tiles...>, int index) {
  const GemmConfig configs[] = {config_of<Tiles>()...};
  return configs[index];
}

template <class... Tiles>
bool has_tile(TileList<Tiles...>, const GemmConfig& config) {
  return (matches<Tiles>(config) || ...);
}

bool is_compiled(const GemmConfig& c) {
  return has_tile(SwigluPlain128And192{}, c) || has_tile(SwigluPlain64{}, c) ||
         has_tile(SwigluSwapped{}, c);
}

// Rounds the tile's features up to whole groups of 8 rows of gate and 8 of up.
GemmConfig pair_features(GemmConfig c) {
  const auto round_up = [](int value) { return (value + kPairRows - 1) / kPairRows * kPairRows; };
  if (c.swap_operands) {
    c.rows = round_up(c.rows);
  } else {
    c.columns = round_up(c.columns);
  }
  // Wider tiles need too many registers for two blocks per multiprocessor.
  if (c.columns > 64) c.blocks_per_sm = 1;
  return c;
}

// Above this many tokens, swapped tiles and three warpgroups are slower than the cost model says.
constexpr int64_t kFewTileTokens = 1024;

}  // namespace

bool fuses_swiglu(int64_t n, int64_t k, const void* w) {
  return n % (2 * 8) == 0 && k % kBoxK == 0 && is_aligned(w, 16);
}

int count_gemm_swiglu_configs() {
  return count_tiles(SwigluPlain128And192{}) + count_tiles(SwigluPlain64{}) +
         count_tiles(SwigluSwapped{});
}

GemmConfig get_gemm_swiglu_config(int index) {
  constexpr int kPlain = count_tiles(SwigluPlain128And192{}),
                kNarrow = count_tiles(SwigluPlain64{});
  if (index < kPlain) return get_config(SwigluPlain128And192{}, index);
  if (index < kPlain + kNarrow) return get_config(SwigluPlain64{}, index - kPlain);
  return get_config(SwigluSwapped{}, index - kPlain - kNarrow);
}

GemmConfig choose_gemm_swiglu_config(int64_t m, int64_t n, int64_t k) {
  const GemmConfig own = pair_features(choose_gemm_config(m, n, k));
  if (is_compiled(own)) return own;
  m = std::max<int64_t>(m, 1);
  GemmConfig best;
  double best_ns = INFINITY;
  for (int i = 0; i < count_gemm_swiglu_configs(); ++i) {
    const GemmConfig whole = get_gemm_swiglu_config(i);
    if (m > kFewTileTokens && (whole.swap_operands || whole.rows > 128)) continue;
    const GemmConfig config = pair_features(balance_gemm_tiles(whole, m, n));
    const double ns = estimate_gemm_ns(config, m, n, k);
    if (ns < best_ns) best_ns = ns, best = config;
  }
  return best;
}

const char* launch_gemm_swiglu(const GemmArgs& args, cudaStream_t stream) {
  return launch_gemm_swiglu(args, choose_gemm_swiglu_config(args.m, args.n, args.k), stream);
}

const char* launch_gemm_swiglu(const GemmArgs& args, const GemmConfig& config,
                               cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.m == 0) return nullptr;
  if (config.swap_operands && config.rows % kPairRows != 0) return no_such_variant();
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  const auto launch = config.swap_operands ? launch_swiglu_swapped
                      : config.rows == 64  ? launch_swiglu_plain_64
                                           : launch_swiglu_plain_128_192;
  return launch(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels
