// Fills the stages of a grouped FP8 product as float8/load.cuh does, with the weights of the tile's
// expert.
#pragma once
#include "kernels/float8/grouped/tile.cuh"

namespace slimexx::kernels {

template <class Tile>
__device__ void load_grouped_rows(const Float8Problem& p, const GroupedFloat8Shared<Tile>& shared,
                                  int rank) {
  for_each_stage(p, shared, rank, [&](const GroupedFloat8Position& position, int block, int stage) {
    uint64_t* full = shared.full + stage;
    const int row = Tile::kSwap ? position.weights : position.row;
    arrive_expect_bytes(full, shared.row_bytes);
    if constexpr (Tile::kCluster > 1) {
      constexpr int kShare = Tile::kRows / Tile::kCluster;
      load_box_multicast(shared.rows(stage) + rank * kShare * kBlockBytes, &p.a, full,
                         block * kBlockBytes, row + rank * kShare,
                         static_cast<uint16_t>((1 << Tile::kCluster) - 1));
    } else if constexpr (Tile::kGateUp && Tile::kSwap) {
      load_gate_up(shared.rows(stage), &p.a, full, row, block, kEvictFirst);
    } else {
      load_box_hinted(shared.rows(stage), &p.a, full, block * kBlockBytes, row,
                      Tile::kSwap ? kEvictFirst : kEvictNormal);
    }
  });
}

template <class Tile>
__device__ void load_grouped_columns(const Float8Problem& p,
                                     const GroupedFloat8Shared<Tile>& shared, int rank) {
  for_each_stage(p, shared, rank, [&](const GroupedFloat8Position& position, int block, int stage) {
    uint64_t* full = shared.full + stage;
    const int row = !Tile::kSwap ? position.weights : p.one_x_row ? 0 : position.column;
    arrive_expect_bytes(full, p.columns * kBlockBytes);
    if constexpr (Tile::kGateUp && !Tile::kSwap) {
      load_gate_up(shared.columns(stage), &p.b, full, row, block, kEvictNormal);
    } else {
      load_box_hinted(shared.columns(stage), &p.b, full, block * kBlockBytes, row, kEvictNormal);
    }
  });
}

// The token that has the first scale of the tile.
template <class Tile>
__device__ __forceinline__ int first_scale(const Float8Problem& p,
                                           const GroupedFloat8Position& position) {
  if constexpr (!Tile::kSwap) return position.row;
  return p.one_x_row ? 0 : position.column;
}

template <class Tile>
__device__ __forceinline__ UnitScales<Tile> load_unit_scales(const Float8Problem& p,
                                                             const GroupedFloat8Position& position,
                                                             int block) {
  const int feature = Tile::kSwap ? position.row : position.column;
  return {p, feature, block, first_unit_of<Tile>(position.weights - feature)};
}

// Two warps load the scales, as in load.cuh. Scales of tokens are loaded from the last multiple of
// 4 that is not after the tile's first token.
template <class Tile>
__device__ void load_grouped_scales(const Float8Problem& p, const GroupedFloat8Shared<Tile>& shared,
                                    int rank, int part) {
  const int lane = threadIdx.x % 32;
  const int tile = static_cast<int>(blockIdx.x) / Tile::kCluster;
  UnitScales<Tile> scales = load_unit_scales<Tile>(p, find_tile(p, shared, tile, rank), 0);
  if constexpr (!Tile::kQuantises) await_previous_grids();
  const auto load = [&](const GroupedFloat8Position& position, int block, int stage) {
    if (block % 32 == part) scales = load_unit_scales<Tile>(p, position, block - part);
    const float own = scales.spread(block);
    float* slot = shared.slot(stage);
    if (lane < Tile::kUnits) slot[lane] = own;
    complete_slot<Tile>(p, slot, shared.full + stage, block,
                        first_scale<Tile>(p, position) / 4 * 4);
  };
  for_each_stage<2>(p, shared, rank, load, part);
}

}  // namespace slimexx::kernels
