// What a compiled GEMM variant is: tile sizes, shared memory, and the arguments of the kernel.
//
// The kernel computes D[a, b] = A[a, k] B[b, k]^T in tiles of kRows x kColumns. Plain: A is x and B
// is w, so D is y. Swapped: A is w and B is x, so D is y transposed; with few tokens the tile then
// has few columns and the weights stream through the row operand.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace slimexx::kernels {

constexpr int kMaxSharedBytes = 232448;  // per block on sm_90
constexpr int kBoxK = 64;                // elements in a 128-byte swizzled row
constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 2 * kMaxStages * 8;

template <bool kSwapOperands, int kWarpgroups, int kTileColumns, int kClusterBlocks>
struct GemmTile {
  static constexpr bool kSwap = kSwapOperands;
  static constexpr int kGroups = kWarpgroups;  // consumers; one more warpgroup loads
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kCluster = kClusterBlocks;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);

  // Narrow tiles take two boxes a stage: half as many barrier rounds per byte streamed.
  static constexpr int kBoxes = kWarpgroups == 1 && kTileColumns <= 64 ? 2 : 1;
  static constexpr int kBlockK = kBoxes * kBoxK;
  static constexpr int kColumnBoxBytes = kColumns * 128;

  // Output staging of one warpgroup. Plain: two buffers of 64 rows x 64 columns. Swapped: one
  // buffer of kColumns tokens x 64 features.
  static constexpr int kStagingBytes = kSwap ? kColumns * 128 : 2 * 8192;
  // Swapped tiles may have fewer rows than the products read: the rest is whatever lies behind
  // them, up to 56 rows, and lands in accumulators that nobody stores.
  static constexpr int kOverreadBytes = kSwap ? 56 * 128 : 0;
  static constexpr int kFixedBytes =
      1024 + kOverreadBytes + kGroups * kStagingBytes + kBarrierBytes;

  __host__ __device__ static constexpr int stage_bytes(int rows) {
    return kBoxes * (rows * 128 + kColumnBoxBytes);
  }
  __host__ __device__ static constexpr int count_stages(int rows, int blocks_per_sm) {
    const int available = kMaxSharedBytes / blocks_per_sm - 512 * (blocks_per_sm - 1) - kFixedBytes;
    const int stages = available / stage_bytes(rows);
    return stages < kMaxStages ? stages : kMaxStages;
  }
  static constexpr int shared_bytes(int rows, int stages) {
    return kFixedBytes + stages * stage_bytes(rows);
  }

  static_assert((kColumns / kCluster) % 8 == 0, "a block loads whole swizzle atoms");
};

struct GemmProblem {
  CUtensorMap a;  // boxes of `rows` x 64
  CUtensorMap b;  // boxes of kColumns / kCluster x 64
  CUtensorMap y;  // boxes of 64 x 64; plain order and bf16 only
  void* y_base;
  const __nv_bfloat16* bias;
  int64_t y_stride;  // in elements
  bool y_is_f32;
  int tokens;    // m of the product
  int features;  // n of the product
  int rows;      // of a tile; a multiple of 8
  int stages;
  int row_clusters;  // clusters of row tiles
  int column_tiles;
  int tiles;  // row_clusters * column_tiles
  int k_blocks;
  int band;  // in clusters of row tiles
  int lead;
};

// Constants where the variant fixes them.
template <class Tile>
__device__ __forceinline__ int tile_rows(const GemmProblem& p) {
  return Tile::kSwap ? p.rows : Tile::kRows;
}
template <class Tile>
__device__ __forceinline__ int stage_count(const GemmProblem& p) {
  return Tile::kSwap ? p.stages : Tile::count_stages(Tile::kRows, 1);
}

struct TilePosition {
  int row_cluster;
  int column;
};

// Bands of row clusters; inside a band columns advance slowest. So the tiles in flight at a time
// form a near-square patch of the output whose operands stay in L2.
__device__ __forceinline__ TilePosition locate_tile(const GemmProblem& p, int tile) {
  const int band_tiles = p.band * p.column_tiles;
  const int band = tile / band_tiles;
  const int first = band * p.band;
  const int height = min(p.band, p.row_clusters - first);
  const int within = tile - band * band_tiles;
  return {first + within % height, within / height};
}

}  // namespace slimexx::kernels
