// Host side of one compiled variant of the grouped FP8 product.
#pragma once
#include "kernels/float8/grouped/kernel.cuh"
#include "kernels/float8/grouped/variants.h"
#include "kernels/float8/launch.cuh"

namespace slimexx::kernels {

template <class Tile>
void describe_grouped_tiles(Float8Problem& p, const Fp8GroupedGemmArgs& args,
                            const Fp8GemmConfig& config) {
  const int64_t rows = args.rows.rows, x_rows = args.one_x_row ? 1 : rows;
  const int room = config.tokens > 0 ? config.tokens : Tile::kTokens;
  p.tile_tokens = Tile::kSwap ? static_cast<int>(std::min<int64_t>(room, x_rows)) : Tile::kRows;
  p.rows = Tile::kSwap ? config.rows : Tile::kRows;
  p.columns = Tile::kSwap ? p.tile_tokens : Tile::kColumns;
  p.tokens = static_cast<int>(rows);
  p.features = static_cast<int>(args.n);
  const int features = Tile::kSwap ? p.rows : Tile::kColumns;
  p.last_feature = std::max(0, p.features - features);
  p.feature_tiles = divide_up(divide_up(p.features, features), Tile::kCluster);
  // Upper bound: every expert may end with a partial tile.
  const int64_t ends = std::min(args.rows.experts, rows);
  p.tiles = static_cast<int>((rows / p.tile_tokens + ends) * p.feature_tiles);
  p.k_blocks = static_cast<int>(args.k / kFp8GroupColumns);
  p.lead = config.lead;
  if (Tile::kQuantises) describe_float8_input(p, args.x, args.x_stride, x_rows, args.k);
  p.stages = count_float8_stages<Tile>(p.rows, p.input_bytes);
}

template <class Tile>
bool describe_grouped_float8(Float8Problem& p, const Fp8GroupedGemmArgs& args,
                             const Fp8GemmConfig& config) {
  describe_grouped_tiles<Tile>(p, args, config);
  const int64_t rows = args.rows.rows, x_rows = args.one_x_row ? 1 : rows;
  const int64_t f = Tile::kGateUp ? args.n / 2 : args.n;  // features of y
  p.features = static_cast<int>(f);
  p.last_unit = static_cast<int>(f / kFp8UnitRows) - 1;
  p.y_base = args.y;
  p.y_stride = f;
  p.y_is_f32 = args.output == GemmOutput::kF32;
  p.overlap = true;  // the kernel waits for earlier kernels, which write the offsets
  // The earlier product waited for the offsets before it allowed later kernels to start.
  p.offsets_are_written = args.follows_product;
  p.offsets = args.rows.offsets;
  p.experts = p.listed_experts = static_cast<int>(args.rows.experts);
  p.one_x_row = args.one_x_row;
  p.weight_rows = static_cast<int>(Tile::kGateUp ? 2 * args.n : args.n);  // see encode_gate_up
  p.x_scales = args.x_scales;
  p.w_scales = args.w_scales;
  p.x_scale_stride = args.x_scale_stride == 0 ? fp8_scale_stride(x_rows) : args.x_scale_stride;
  p.w_scale_stride = p.k_blocks;
  if (!Tile::kSwap && !p.y_is_f32 && !encode_bf16_matrix(&p.y, args.y, rows, f, f, 64)) {
    return false;
  }
  CUtensorMap* w = Tile::kSwap ? &p.a : &p.b;
  CUtensorMap* x = Tile::kSwap ? &p.b : &p.a;
  const int row_box = p.rows / Tile::kCluster;
  const int w_box = Tile::kSwap ? row_box : p.columns, x_box = Tile::kSwap ? p.columns : row_box;
  if (!Tile::kQuantises && !encode_float8_matrix(x, args.x, x_rows, args.k, args.k, x_box)) {
    return false;
  }
  return Tile::kGateUp
             ? encode_float8_gate_up(w, args.w, f, args.k, args.k, w_box, args.rows.experts)
             : encode_float8_matrix(w, args.w, args.rows.experts * args.n, args.k, args.k, w_box);
}

// DenseTile, Rest: tiles of tile.cuh.
template <class DenseTile, class... Rest>
const char* launch_grouped_float8_matching(const Fp8GroupedGemmArgs& args,
                                           const Fp8GemmConfig& config, int sm_count,
                                           cudaStream_t stream) {
  using Tile = GroupedFloat8Tile<DenseTile>;
  if (matches_float8<Tile>(config)) {
    Float8Problem problem{};
    if (!describe_grouped_float8<Tile>(problem, args, config)) {
      return "fp8_grouped_gemm: the driver refused a tensor map of x, w or y";
    }
    using Epilogue = std::conditional_t<Tile::kGateUp, StoreSwiglu, StoreProduct>;
    return launch_float8_kernel<Tile>(grouped_float8_kernel<Tile, Epilogue>, problem, sm_count,
                                      stream, Epilogue{});
  }
  if constexpr (sizeof...(Rest) > 0) {
    return launch_grouped_float8_matching<Rest...>(args, config, sm_count, stream);
  } else {
    return "fp8_grouped_gemm: no variant is compiled for this tile";
  }
}

}  // namespace slimexx::kernels
