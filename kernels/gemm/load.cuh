// Shared memory of a GEMM block, and the two threads that fill its ring of stages: one with
// weights, one with tokens.
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/gemm/swiglu/swiglu_weights.cuh"
#include "kernels/gemm/tile.cuh"

namespace slimexx::kernels {

constexpr int kTurnedBoxBytes = kBoxK * 128;  // 64 rows of k by 64 columns

template <class Tile>
struct GemmShared {
  uint8_t* stages;    // each: kBoxes row boxes, then kBoxes column boxes
  uint8_t* staging;   // kGroups buffers
  uint64_t* full;     // per stage: bytes of both operands have landed
  uint64_t* empty;    // per stage: read by every consumer warp of the cluster
  int* first_tiles;   // [experts + 1], grouped: first token tile per expert, then the total
  int* first_rows;    // [experts + 1], grouped and swapped; plain tiles need the memory for stages
  uint64_t* counted;  // grouped: the two lists are written
  int row_box_bytes;
  int column_box_bytes;
  int stage_bytes;

  __device__ GemmShared(uint8_t* raw, const GemmProblem& p) {
    row_box_bytes = tile_rows<Tile>(p) * 128;
    column_box_bytes = tile_columns<Tile>(p) * 128;
    stage_bytes = Tile::stage_bytes(tile_rows<Tile>(p), tile_columns<Tile>(p));
    // Dynamic shared memory starts at the same offset in all blocks, so all blocks of a cluster
    // have the same addresses.
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    staging = stages + stage_count<Tile>(p) * stage_bytes + Tile::kOverreadBytes;
    full = reinterpret_cast<uint64_t*>(staging + Tile::kGroups * Tile::kStagingBytes);
    empty = full + kMaxStages;
    first_tiles = reinterpret_cast<int*>(empty + kMaxStages);
    first_rows = first_tiles + kFirstTileBytes / 4;
    counted =
        reinterpret_cast<uint64_t*>(Tile::kSwap ? first_rows + kFirstTileBytes / 4 : first_rows);
  }
  __device__ __forceinline__ uint8_t* row_box(int stage, int box) const {
    return stages + stage * stage_bytes + box * row_box_bytes;
  }
  __device__ __forceinline__ uint8_t* column_box(int stage, int box) const {
    return stages + stage * stage_bytes + Tile::kBoxes * row_box_bytes + box * column_box_bytes;
  }
};

// One warp counts the tiles of all experts. Each lane loads the offsets of consecutive experts at
// once and counts their tiles.
template <class Tile>
__device__ __forceinline__ void count_expert_tiles(const GemmProblem& p,
                                                   const GemmShared<Tile>& shared) {
  const int lane = threadIdx.x % 32, of_lane = (p.experts + 31) / 32, first = lane * of_lane;
  int offsets[kExpertsOfLane + 1];
#pragma unroll
  for (int i = 0; i <= kExpertsOfLane; ++i) {
    const int expert = min(first + i, p.experts);
    // Read from L2: this kernel may start before earlier kernels end, and the L1 may still hold
    // another layer's offsets.
    if (i <= of_lane)
      offsets[i] = expert > p.listed_experts ? p.end_row : __ldcg(p.offsets + expert);
  }
  int tiles[kExpertsOfLane + 1],
      own = 0;  // tiles[i]: tiles of the lane's experts before its i-th expert
#pragma unroll
  for (int i = 0; i < kExpertsOfLane; ++i) {
    tiles[i] = own;
    if (i < of_lane) own += (offsets[i + 1] - offsets[i] + p.tile_tokens - 1) / p.tile_tokens;
  }
  int before = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffff, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) shared.first_tiles[p.experts] = before;
  before -= own;
#pragma unroll
  for (int i = 0; i <= kExpertsOfLane; ++i) {
    if (i < of_lane && first + i < p.experts) {
      shared.first_tiles[first + i] = before + tiles[i];
      if (Tile::kSwap) shared.first_rows[first + i] = offsets[i];
    }
    if (Tile::kSwap && i == of_lane && lane == 31) shared.first_rows[p.experts] = offsets[i];
  }
}

// The first row of an expert, or the end of all rows.
template <class Tile>
__device__ __forceinline__ int first_row(const GemmProblem& p, const GemmShared<Tile>& shared,
                                         int expert) {
  if constexpr (Tile::kSwap) return shared.first_rows[expert];
  return expert > p.listed_experts ? p.end_row : p.offsets[expert];
}

template <class Tile>
__device__ __forceinline__ int count_tiles(const GemmProblem& p, const GemmShared<Tile>& shared) {
  if constexpr (!Tile::kGrouped) {
    return p.tiles;
  } else {
    const int of_tokens =
        p.shared_first ? shared.first_tiles[p.listed_experts] + 1 : shared.first_tiles[p.experts];
    return of_tokens * p.feature_tiles;
  }
}

// Whether the experts' tiles are counted while the first weights load.
template <class Tile>
__device__ __forceinline__ bool counts_late(const GemmProblem& p) {
  return Tile::kGrouped && Tile::kSwap && p.shared_first && !p.offsets_are_written;
}

// Features advance fastest, then the tiles of an expert's tokens, then experts: blocks that run at
// the same time share tokens, and most of them share an expert's weights.
template <class Tile>
__device__ __forceinline__ TilePosition find_tile(const GemmProblem& p,
                                                  const GemmShared<Tile>& shared, int tile,
                                                  int rank) {
  if constexpr (Tile::kHeads) {
    const int token_tile = tile / p.feature_tiles, head = token_tile / p.token_tiles;
    const int feature = (tile - token_tile * p.feature_tiles) * Tile::kColumns;
    return {(token_tile - head * p.token_tiles) * p.tile_tokens, feature,
            head * p.weight_rows + (Tile::kTurned ? 0 : feature), p.tokens, head};
  } else if constexpr (!Tile::kGrouped) {
    return locate_tile<Tile>(p, tile, rank);
  } else {
    const int place = tile / p.feature_tiles;
    const int feature = (tile - place * p.feature_tiles) * (Tile::kSwap ? p.rows : Tile::kColumns);
    const int token_tile = place - (p.shared_first ? 1 : 0);
    int expert = token_tile < 0 ? p.listed_experts : 0;
    int above = p.shared_first ? p.listed_experts : p.experts;
    while (above - expert > 1) {  // finds the last expert whose first tile is not after this tile
      const int middle = (expert + above) / 2;
      if (shared.first_tiles[middle] <= token_tile) {
        expert = middle;
      } else {
        above = middle;
      }
    }
    const int within = token_tile < 0 ? 0 : token_tile - shared.first_tiles[expert];
    const int token = first_row(p, shared, expert) + within * p.tile_tokens;
    const int head = expert == p.listed_experts ? 1 : 0;
    const int weights = (head == 1 ? 0 : expert * p.weight_rows) + (Tile::kTurned ? 0 : feature);
    const int end = first_row(p, shared, expert + 1);
    return Tile::kSwap ? TilePosition{feature, token, weights, end, head}
                       : TilePosition{token, feature, weights, end, head};
  }
}

// Loads the boxes of one K block of the weights or of the tokens. In a cluster a block loads only
// its share of the weights and multicasts it to all blocks.
template <class Tile, bool kWeights>
__device__ __forceinline__ void load_operand(const GemmProblem& p, const GemmShared<Tile>& shared,
                                             int stage, TilePosition tile, int rank, int block) {
  constexpr bool kIsRows = kWeights == Tile::kSwap;
  const CUtensorMap* map = kIsRows ? &p.a : &p.b;
  if (Tile::kGrouped && kWeights && tile.head == 1) map = &p.shared;
  uint64_t* full = shared.full + stage;
  const int room = kIsRows ? tile_rows<Tile>(p) : tile_columns<Tile>(p);
  const bool one_row = Tile::kGrouped && !kWeights && p.one_x_row;
  const int first = kWeights ? tile.weights : one_row ? 0 : kIsRows ? tile.row : tile.column;
  uint8_t* dst = kIsRows ? shared.row_box(stage, 0) : shared.column_box(stage, 0);
  const uint64_t hint = kWeights && p.weights_read_once ? kEvictFirst : kEvictNormal;
  const int loaded = kWeights || p.whole_boxes ? room : p.tile_tokens;
  arrive_expect_bytes(full, Tile::kBoxes * 128 * loaded);
  if constexpr (kWeights && Tile::kCluster > 1) {
    static_assert(Tile::kBoxes == 1);
    const int share = room / Tile::kCluster;
    uint8_t* own = dst + rank * share * 128;
    constexpr uint16_t kAll = (1 << Tile::kCluster) - 1;
    if constexpr (kIsGateUp<Tile>) {
      load_gate_up_multicast(own, map, full, first + rank * share, block, kAll);
    } else {
      load_box_multicast(own, map, full, block * kBoxK, first + rank * share, kAll);
    }
  } else if constexpr (kWeights && kIsGateUp<Tile>) {
    load_gate_up(dst, map, full, first, block * Tile::kBoxes, hint);
  } else if constexpr (kWeights && Tile::kTurned) {
#pragma unroll
    for (int box = 0; box < Tile::kColumns / kBoxK; ++box) {
      load_box_hinted(dst + box * kTurnedBoxBytes, map, full, tile.column + box * kBoxK,
                      first + block * kBoxK, hint);
    }
  } else if constexpr (!kWeights && Tile::kHeads) {
    load_box_hinted(dst, map, full, block * kBoxK, tile.head, first, hint);
  } else if (Tile::kBoxes > 1 && p.whole_boxes) {
    load_box_hinted(dst, map, full, 0, first, block * Tile::kBoxes, hint);
  } else {
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
      const int k = block * Tile::kBlockK + box * kBoxK;
      load_box_hinted(dst + box * room * 128, map, full, k, first, hint);
    }
  }
}

template <class Tile, bool kWeights>
__device__ __forceinline__ void load_tile(const GemmProblem& p, const GemmShared<Tile>& shared,
                                          TilePosition position, int rank, StageCursor& cursor) {
  for (int block = 0; block < p.k_blocks; ++block) {
    wait(shared.empty + cursor.stage, cursor.parity ^ 1);
    load_operand<Tile, kWeights>(p, shared, cursor.stage, position, rank, block);
    cursor.advance(stage_count<Tile>(p));
  }
}

// Loads the K blocks of all tiles; one thread runs this for the weights and one for the tokens. The
// copy engine works in the order of issue. If one thread ran far ahead of the other, the first
// stage would become full last.
template <class Tile, bool kWeights>
__device__ void load_tiles(const GemmProblem& p, const GemmShared<Tile>& shared, int rank) {
  const int clusters = gridDim.x / Tile::kCluster;
  StageCursor cursor;
  int tile = blockIdx.x / Tile::kCluster;
  if (kWeights && counts_late<Tile>(p)) {
    if (tile < p.feature_tiles) {
      const int feature = tile * p.rows;
      load_tile<Tile, kWeights>(p, shared, {feature, 0, feature, 0, 1}, rank, cursor);
      tile += clusters;
    }
    wait(shared.counted, 0);
  }
  const int tiles = count_tiles(p, shared);
  for (; tile < tiles; tile += clusters) {
    load_tile<Tile, kWeights>(p, shared, find_tile(p, shared, tile, rank), rank, cursor);
  }
}

}  // namespace slimexx::kernels
