// Host side of one compiled tile of a grouped product. The kernel is kernels/gemm/kernel.cuh, which
// finds the tiles from the experts' offsets on the device.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/experts/variants.h"
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels {

static_assert(kMaxExperts == kMostExperts, "every supported expert needs a first tile");

// Fills in the fields that all grouped products share. `features`: rows of one expert in the
// weights' operand.
template <class Tile>
bool describe_grouped(GemmProblem& p, const GroupedGemmArgs& args, const GemmConfig& config,
                      int64_t features, int64_t k) {
  const int64_t x_rows = args.one_x_row ? 1 : args.rows.rows;
  const GemmArgs whole{.x = args.x, .w = args.w, .y = args.y, .m = x_rows, .n = features, .k = k};
  if (!describe_problem<Tile>(p, whole, config, false)) return false;
  p.overlap = true;  // the kernel waits for earlier kernels, which write the offsets
  // The earlier product waited for the offsets before it allowed later kernels to start.
  p.offsets_are_written = args.follows_product && Tile::kSwap;
  p.offsets = args.rows.offsets;
  p.listed_experts = static_cast<int>(args.rows.experts);
  p.experts = p.listed_experts + (args.shared_w != nullptr ? 1 : 0);
  p.end_row = static_cast<int>(args.rows.rows);
  p.one_x_row = args.one_x_row;
  p.shared_first = args.shared_w != nullptr && args.one_x_row && Tile::kSwap;
  p.weight_rows = static_cast<int>(features);
  p.weights_read_once = Tile::kSwap;
  const int64_t tile_features = Tile::kSwap ? p.rows : Tile::kColumns;
  p.feature_tiles = static_cast<int>(divide_up(features, tile_features));
  // Upper bound: every expert may end with a partial tile.
  const int64_t ends = std::min<int64_t>(p.experts, args.rows.rows);
  p.tiles = static_cast<int>((args.rows.rows / p.tile_tokens + ends) * p.feature_tiles);
  return true;
}

template <class Tile>
const char* launch_grouped(const GroupedGemmArgs& args, const GemmConfig& config, int sm_count,
                           cudaStream_t stream) {
  GemmProblem p{};
  if (!describe_grouped<Tile>(p, args, config, args.n, args.k)) return map_refused();
  const int weight_rows = Tile::kSwap ? p.rows : p.columns;
  if (!encode_operand<Tile>(Tile::kSwap ? &p.a : &p.b, p, args.w, args.rows.experts * args.n,
                            args.k, args.k, weight_rows) ||
      (args.shared_w != nullptr &&
       !encode_operand<Tile>(&p.shared, p, args.shared_w, args.n, args.k, args.k, weight_rows))) {
    return map_refused();
  }
  return start_variant<Tile>(p, config, sm_count, stream, StoreProduct{});
}

template <class Tile, class... Rest>
const char* launch_matching_grouped(const GroupedGemmArgs& args, const GemmConfig& config,
                                    int sm_count, cudaStream_t stream) {
  if (matches<Tile>(config)) return launch_grouped<Tile>(args, config, sm_count, stream);
  if constexpr (sizeof...(Rest) > 0) {
    return launch_matching_grouped<Rest...>(args, config, sm_count, stream);
  } else {
    return no_such_variant();
  }
}

}  // namespace slimexx::kernels
