// Shared memory of a GEMM block, and the one thread that fills its ring of stages.
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/gemm/tile.cuh"

namespace slimexx::kernels {

template <class Tile>
struct GemmShared {
  uint8_t* stages;   // each: kBoxes row boxes, then kBoxes column boxes
  uint8_t* staging;  // kGroups buffers
  uint64_t* full;    // per stage: bytes have landed
  uint64_t* empty;   // per stage: every consumer warp of the cluster has read it
  int row_box_bytes;
  int stage_bytes;
  int loaded_bytes;  // of a stage

  __device__ GemmShared(uint8_t* raw, const GemmProblem& p) {
    row_box_bytes = tile_rows<Tile>(p) * 128;
    stage_bytes = Tile::stage_bytes(tile_rows<Tile>(p));
    loaded_bytes = Tile::kBoxes * 128 * (p.tile_tokens + (Tile::kSwap ? p.rows : Tile::kColumns));
    // The offset of the dynamic part is the same in all blocks, so peers agree on every address.
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    staging = stages + stage_count<Tile>(p) * stage_bytes + Tile::kOverreadBytes;
    full = reinterpret_cast<uint64_t*>(staging + Tile::kGroups * Tile::kStagingBytes);
    empty = full + kMaxStages;
  }
  __device__ __forceinline__ uint8_t* row_box(int stage, int box) const {
    return stages + stage * stage_bytes + box * row_box_bytes;
  }
  __device__ __forceinline__ uint8_t* column_box(int stage, int box) const {
    return stages + stage * stage_bytes + Tile::kBoxes * row_box_bytes +
           box * Tile::kColumnBoxBytes;
  }
};

// One box of weights or, with kShares > 1, this block's share of one, into all blocks of the
// cluster.
template <int kShares>
__device__ __forceinline__ void load_weight_box(uint8_t* dst, const CUtensorMap* map,
                                                uint64_t* full, int k, int feature, int features,
                                                int rank) {
  if constexpr (kShares > 1) {
    const int share = features / kShares;
    load_box_multicast(dst + rank * share * 128, map, full, k, feature + rank * share,
                       (1 << kShares) - 1);
  } else {
    load_box(dst, map, full, k, feature);
  }
}

template <class Tile>
__device__ __forceinline__ void load_weights(const GemmProblem& p, const GemmShared<Tile>& shared,
                                             int stage, TilePosition tile, int rank, int block) {
  uint64_t* full = shared.full + stage;
  arrive_expect_bytes(full, shared.loaded_bytes);
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
    const int k = block * Tile::kBlockK + box * kBoxK;
    if constexpr (Tile::kSwap) {
      load_weight_box<Tile::kCluster>(shared.row_box(stage, box), &p.a, full, k, tile.row, p.rows,
                                      rank);
    } else {
      load_weight_box<Tile::kCluster>(shared.column_box(stage, box), &p.b, full, k, tile.column,
                                      Tile::kColumns, rank);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void load_tokens(const GemmProblem& p, const GemmShared<Tile>& shared,
                                            int stage, TilePosition tile, int block) {
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
    const int k = block * Tile::kBlockK + box * kBoxK;
    if constexpr (Tile::kSwap) {
      load_box(shared.column_box(stage, box), &p.b, shared.full + stage, k, tile.column);
    } else {
      load_box(shared.row_box(stage, box), &p.a, shared.full + stage, k, tile.row);
    }
  }
}

// K blocks of the first tile that need no free stage.
template <class Tile>
__device__ __forceinline__ int count_first_blocks(const GemmProblem& p) {
  return min(stage_count<Tile>(p), p.k_blocks);
}

// One thread of the block runs this as soon as the barriers of the stages exist. Before the
// previous kernel has ended only weights may be read.
template <class Tile>
__device__ void load_first_blocks(const GemmProblem& p, const GemmShared<Tile>& shared, int rank) {
  const TilePosition tile = locate_tile<Tile>(p, blockIdx.x / Tile::kCluster, rank);
  const int blocks = count_first_blocks<Tile>(p);
  for (int block = 0; block < blocks; ++block) {
    load_weights(p, shared, block, tile, rank, block);
    if (!p.overlap) load_tokens(p, shared, block, tile, block);
  }
}

// And this after it.
template <class Tile>
__device__ void load_tiles(const GemmProblem& p, const GemmShared<Tile>& shared, int rank) {
  const int stages = stage_count<Tile>(p);
  const int clusters = gridDim.x / Tile::kCluster;
  int tile = blockIdx.x / Tile::kCluster;
  int block = count_first_blocks<Tile>(p);
  if (p.overlap) {
    await_previous_grids();
    const TilePosition position = locate_tile<Tile>(p, tile, rank);
    for (int i = 0; i < block; ++i) load_tokens(p, shared, i, position, i);
  }
  StageCursor cursor{block % stages, block == stages ? 1u : 0u};
  for (; tile < p.tiles; tile += clusters, block = 0) {
    const TilePosition position = locate_tile<Tile>(p, tile, rank);
    for (; block < p.k_blocks; ++block) {
      wait(shared.empty + cursor.stage, cursor.parity ^ 1);
      load_weights(p, shared, cursor.stage, position, rank, block);
      load_tokens(p, shared, cursor.stage, position, block);
      cursor.advance(stages);
    }
  }
}

}  // namespace slimexx::kernels
