// A compiled variant of the FP8 product: tile sizes, shared memory, and the arguments of the
// kernel.
//
// As in gemm/tile.cuh the kernel computes D[a, b] = A[a, k] B[b, k]^T; plain: A is x, swapped: A is
// w. A box of 128 bytes is one K block, and its scales are one group: 128 elements.
//
// Reasons for these tiles. The sums exist twice, as sums and as the temporary of a K block. So a
// warpgroup with 64 x 128 outputs has 128 registers per thread in them, and three warpgroups of 160
// registers fit. Measured clocks of one warpgroup per K block, 64 x n: 236, 259, 299, 378, 543 for
// n = 8, 16, 32, 64, 128; with two temporaries in turn 229, 245, 279, 345, 474. The tensor cores
// need 2 n. One warpgroup of 64 x 128 therefore keeps them half busy, two keep them 94 % busy (with
// two temporaries fully), and three keep them busy even while one of them stores.
//
// Bounds of the tile 192 x 128. Shared memory: wgmma reads 96 of 128 bytes per clock and TMA writes
// 53, so at most 86 % of 1979 TFLOP/s. L2: a K block reads 40 KB per 6.3 MFLOP, so 1200 TFLOP/s
// read 7.8 TB/s; a cluster of two that shares A reads 28 KB, so 5.5 TB/s.
#pragma once
#include "kernels/gemm/tile.cuh"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

constexpr int kFloat8MaxStages = 24;
constexpr int kFloat8BarrierBytes = 2 * kFloat8MaxStages * 8;
constexpr int kBlockBytes = 128;  // of a row: one K block
constexpr int kSlotUnits = 8;     // room for scales of weights in a stage's slot

// Gate-up: the weights' rows alternate as in gemm/swiglu/swiglu_weights.cuh.
template <bool kSwapOperands, int kWarpgroups, int kTileColumns, int kClusterBlocks = 1,
          bool kIsGateUp = false>
struct Float8Tile {
  static constexpr bool kSwap = kSwapOperands;
  static constexpr int kGroups = kWarpgroups;  // consumers; one more warpgroup loads
  static constexpr int kRows = 64 * kGroups;   // each warpgroup computes 64 rows
  static constexpr int kColumns = kTileColumns;
  static constexpr bool kGateUp = kIsGateUp;
  // The thread blocks of a cluster compute the same rows and different columns. Each block
  // multicasts its share of the rows to all blocks.
  static constexpr int kCluster = kClusterBlocks;
  static constexpr int kThreads = 128 * (kGroups + 1);
  // With two, the scaled addition of one temporary overlaps the products of the other.
  static constexpr int kTemporaries =
      kGroups * kColumns <= 256 && kColumns <= 128 && (kGroups < 3 || kColumns <= 64) ? 2 : 1;
  // K blocks that start and end together, each with its own temporary. With few columns they take
  // hardly longer than one K block, whose time is mostly latency: of its chain of wgmma, of
  // barriers and of additions.
  static constexpr int kBatch = !kSwap || kGroups * kColumns > 64 ? 1
                                : kGroups* kColumns > 16          ? 2
                                                                  : 4;
  // Thread blocks per multiprocessor: two with few columns, so that the next kernel can load
  // weights while this kernel runs.
  static constexpr int kBlocksPerSm = kSwap && kGroups == 1 && kColumns <= 32 ? 2 : 1;
  // Whether the products of scales are computed while the tensor cores work.
  static constexpr bool kEarlyScales = !kSwap || kColumns <= (kGroups < 3 ? 64 : 32);
  static constexpr bool kMoveRegisters =
      kGroups == 2 ? kColumns > 64 : kGroups == 3 && kColumns > 32;

  // Output staging of one warpgroup, as in GemmTile.
  static constexpr bool kStaged = true;
  static constexpr int kBuffers = kColumns > 64 ? 2 : 1;
  static constexpr int kStagingBytes =
      kBuffers * (kSwap && kColumns < 64 ? kColumns * kBlockBytes : 8192);
  // Further members that the functions of gemm/ need of a tile.
  static constexpr bool kPingPong = false, kFewerRows = kSwap;
  static constexpr int kRowBlocks = 1;
  static constexpr bool kGrouped = false;
  static constexpr bool kQuantises = false;  // see QuantisingTile

  // A stage may hold fewer rows than wgmma reads; see GemmTile.
  static constexpr int kOverreadBytes = kSwap ? 56 * kBlockBytes : 0;
  static constexpr int kFixedBytes =
      1024 + kOverreadBytes + kGroups * kStagingBytes + kFloat8BarrierBytes;
  static constexpr int kSharedBytes = kBlocksPerSm == 2 ? 113 * 1024 : kMaxSharedBytes;
  // The scales of a stage: those of the tile's units of weights, then those of its tokens.
  static constexpr int kTokens = kSwap ? kColumns : kRows;
  static constexpr int kStageColumns = kColumns;  // rows of B in a stage
  static constexpr int kSlotFloats = kSlotUnits + kTokens;
  // Units of weights of a tile; in swapped order a tile may begin within a unit. Gate-up: units of
  // gate come first.
  static constexpr int kSwappedUnits = kGateUp ? 2 * (kGroups == 3 ? 3 : 2) : kGroups + 1;
  // Plain: columns that share a scale. A tile of 96 columns may begin in the middle of a unit.
  static constexpr int kScaleColumns = kColumns % kFp8UnitRows == 0 ? kFp8UnitRows : 32;
  static constexpr int kUnits = kSwap ? kSwappedUnits : kColumns / kScaleColumns;

  static_assert(kSwap || kColumns % kScaleColumns == 0);
  static_assert(kUnits <= kSlotUnits && kTokens % 8 == 0);
  static_assert(!kGateUp || (kSwap ? kColumns % 16 == 0 : kColumns == 128));
};

// Named by the rows x columns of D.
template <int kRows, int kColumns, int kCluster = 1>
using Float8PlainTile = Float8Tile<false, kRows / 64, kColumns, kCluster>;
template <int kRows, int kColumns, int kCluster = 1>
using Float8SwappedTile = Float8Tile<true, kRows / 64, kColumns, kCluster>;

template <int kRows, int kColumns, int kCluster = 1>
using Float8GateUpPlainTile = Float8Tile<false, kRows / 64, kColumns, kCluster, true>;
template <int kRows, int kColumns, int kCluster = 1>
using Float8GateUpSwappedTile = Float8Tile<true, kRows / 64, kColumns, kCluster, true>;

// A tile of few tokens whose computing warps quantise x, before they multiply: see input.cuh.
template <class Base>
struct QuantisingTile : Base {
  static constexpr bool kQuantises = true;
  // Two warpgroups also leave room for the next kernel. Then a stage of 128 rows fits four times
  // beside the largest x, which is enough for two batches of two.
  static constexpr int kBlocksPerSm = Base::kGroups <= 2 ? 2 : 1;
  static constexpr int kSharedBytes = kBlocksPerSm == 2 ? 113 * 1024 : kMaxSharedBytes;
  static constexpr int kBatch = Base::kGroups == 2 ? 2 : Base::kBatch;
  static constexpr int kStageColumns = 0, kSlotFloats = kSlotUnits;
  // What wgmma reads after the last stage may be staging buffers.
  static constexpr int kAllStagingBytes = Base::kGroups * Base::kStagingBytes;
  static constexpr int kOverreadBytes = Base::kOverreadBytes - kAllStagingBytes;
  static constexpr int kFixedBytes = Base::kFixedBytes - kAllStagingBytes;

  static_assert(Base::kSwap && Base::kCluster == 1 && Base::kColumns <= kFp8MostInputRows);
};

template <class Tile>
__host__ __device__ constexpr int float8_stage_bytes(int rows) {
  return (rows + Tile::kStageColumns) * kBlockBytes;
}
// `input_bytes`: the quantised x, if the tile quantises it.
template <class Tile>
__host__ __device__ constexpr int count_float8_stages(int rows, int input_bytes = 0) {
  const int stages = (Tile::kSharedBytes - Tile::kFixedBytes - input_bytes) /
                     (float8_stage_bytes<Tile>(rows) + Tile::kSlotFloats * 4);
  return stages < kFloat8MaxStages ? stages : kFloat8MaxStages;
}
template <class Tile>
constexpr int float8_shared_bytes(int rows, int stages, int input_bytes) {
  return Tile::kFixedBytes + input_bytes +
         stages * (float8_stage_bytes<Tile>(rows) + Tile::kSlotFloats * 4);
}

// Members as in GemmProblem, with two exceptions: the tiles of a cluster are adjacent along the
// columns, so row_clusters counts tiles, and columns is the number of rows in a box of B.
struct Float8Problem : GemmProblem {
  const float* x_scales;
  const float* w_scales;
  int64_t x_scale_stride;
  int64_t w_scale_stride;
  int last_unit;  // of 64 rows of w; gate-up: of gate, whose units are before those of up
  // Quantising tiles only.
  const __nv_bfloat16* x;
  int64_t x_stride;
  int x_rows;
  int x_pitch;      // in shared memory, see input.cuh
  int input_bytes;  // of shared memory
};

template <class Tile>
__device__ __forceinline__ int float8_stages(const Float8Problem& p) {
  return Tile::kSwap ? p.stages : count_float8_stages<Tile>(Tile::kRows);
}

// The first row and column of a tile in D. The order of tiles is that of locate_tile.
struct Float8Position {
  int row, column;
};
template <class Tile>
__device__ __forceinline__ Float8Position locate_float8_tile(const Float8Problem& p, int tile,
                                                             int rank) {
  const int band_tiles = p.band * p.column_clusters;
  const int band = tile / band_tiles;
  const int first = band * p.band;
  const int height = min(p.band, p.row_clusters - first);
  const int within = tile - band * band_tiles;
  const int row = (first + within % height) * tile_rows<Tile>(p);
  const int column =
      (within / height * Tile::kCluster + rank) * (Tile::kSwap ? p.tile_tokens : Tile::kColumns);
  return {min(row, Tile::kSwap ? p.last_feature : p.last_token),
          min(column, Tile::kSwap ? p.last_token : p.last_feature)};
}

}  // namespace slimexx::kernels
