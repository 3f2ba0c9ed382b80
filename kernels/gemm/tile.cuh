// A compiled GEMM variant: tile sizes, shared memory, and the arguments of the kernel.
//
// The kernel computes D[a, b] = A[a, k] B[b, k]^T in tiles of kRows x kColumns. Plain: A is x and B
// is w, so D is y. Swapped: A is w and B is x, so D is y transposed (swap AB); with few tokens the
// tile then has few columns and the weights stream through the row operand.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace slimexx::kernels {

constexpr int kMaxSharedBytes = 232448;  // per block on sm_90
constexpr int kBoxK = 64;                // elements in a 128-byte swizzled row
constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 2 * kMaxStages * 8;
constexpr int kMaxExperts = 384;
constexpr int kExpertsOfLane = kMaxExperts / 32 + 1;  // plus the shared expert
constexpr int kFirstTileBytes = (kMaxExperts + 4) * 4;

// Ping-pong: the two warpgroups compute alternate tiles of 128 rows, so that one stores while the
// other multiplies. Otherwise cooperative: all warpgroups compute one tile, 64 rows each. Grouped:
// rows of x belong to experts, which have weights of their own; all tokens of a tile belong to one
// expert. Heads: one product per head, with the head's part of each token's row and the head's own
// weights. Turned: B is stored as [k, b], with its columns contiguous.
enum class GemmKind : uint8_t { kOne, kGrouped, kHeads };
template <bool kSwapOperands, int kWarpgroups, int kTileColumns, int kClusterBlocks,
          bool kIsPingPong = false, GemmKind kKind = GemmKind::kOne, bool kIsTurned = false>
struct GemmTile {
  static constexpr bool kSwap = kSwapOperands;
  static constexpr int kGroups = kWarpgroups;  // consumers; one more warpgroup loads
  static constexpr bool kPingPong = kIsPingPong;
  static constexpr bool kGrouped = kKind == GemmKind::kGrouped;
  static constexpr bool kHeads = kKind == GemmKind::kHeads;
  static constexpr bool kTurned = kIsTurned;
  static constexpr int kRowBlocks = kPingPong ? 2 : 1;         // blocks of 64 rows per warpgroup
  static constexpr int kTileGroups = kPingPong ? 1 : kGroups;  // warpgroups per tile
  static constexpr int kRows = 64 * kRowBlocks * kTileGroups;
  static constexpr int kColumns = kTileColumns;
  // The thread blocks of a cluster compute the same features of different tokens. Each block
  // multicasts its share of the weights to all blocks.
  static constexpr int kCluster = kClusterBlocks;
  static constexpr int kRowCluster = kSwap ? 1 : kCluster;
  static constexpr int kColumnCluster = kSwap ? kCluster : 1;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);

  // Narrow tiles have two boxes per stage, loaded by one copy if k is a multiple of 64. With one
  // box per stage, the time to issue copies, about 100 clocks each, would be the bottleneck.
  static constexpr int kBoxes = kWarpgroups == 1 && kTileColumns <= 128 && !kHeads ? 2 : 1;
  static constexpr int kBlockK = kBoxes * kBoxK;

  // Output staging of one warpgroup: up to 64 x 64 outputs at a time. Wider tiles alternate between
  // two buffers, except with three warpgroups, where the stages need the memory, and with
  // ping-pong, which hides the stores anyway. Narrow plain tiles are stored from registers.
  static constexpr bool kStaged = kSwap || kColumns > 64;
  static constexpr int kBuffers = kColumns > 64 && kWarpgroups < 3 && !kPingPong ? 2 : 1;
  static constexpr int kStagingBytes =
      !kStaged ? 0 : kBuffers * (kSwap && kColumns < 64 ? kColumns * 128 : 8192);
  // A stage may hold fewer rows than wgmma reads. wgmma then reads up to 56 rows past the stage,
  // into accumulators that are not stored.
  static constexpr bool kFewerRows = kSwap || kGroups == 1;
  static constexpr int kOverreadBytes = kFewerRows ? 56 * 128 : 0;
  static constexpr int kFixedBytes = 1024 + kOverreadBytes + kGroups * kStagingBytes +
                                     kBarrierBytes +
                                     (kGrouped ? kFirstTileBytes * (kSwap ? 2 : 1) + 8 : 0);

  // Bytes of a stage with room for `rows` rows of A and `columns` rows of B.
  __host__ __device__ static constexpr int stage_bytes(int rows, int columns) {
    return kBoxes * (rows + columns) * 128;
  }
  __host__ __device__ static constexpr int count_stages(int rows, int blocks_per_sm,
                                                        int columns = kColumns) {
    const int available = kMaxSharedBytes / blocks_per_sm - 512 * (blocks_per_sm - 1) - kFixedBytes;
    const int stages = available / stage_bytes(rows, columns);
    return stages < kMaxStages ? stages : kMaxStages;
  }
  static constexpr int shared_bytes(int rows, int columns, int stages) {
    return kFixedBytes + stages * stage_bytes(rows, columns);
  }

  static_assert(!kPingPong || (!kSwap && kGroups == 2));
  static_assert(!kGrouped || (kCluster == 1 && !kPingPong));
  static_assert(!kHeads || (kCluster == 1 && !kPingPong && !kSwap && kBoxes == 1));
  static_assert(!kTurned ||
                ((kGrouped || kHeads) && !kSwap && kBoxes == 1 && kColumns % kBoxK == 0));
  static_assert(kColumns % (8 * kRowCluster) == 0,
                "a share of the weights must be whole swizzle atoms");
};

// Named by the rows x columns of D. Plain: tokens x features. Swapped: features x tokens.
template <int kRows, int kColumns, int kCluster = 1>
using PlainTile = GemmTile<false, kRows / 64, kColumns, kCluster>;
template <int kRows, int kColumns>
using SwappedTile = GemmTile<true, kRows / 64, kColumns, 1>;
template <int kColumns>
using PingPongTile = GemmTile<false, 2, kColumns, 2, true>;  // 128 rows
template <int kRows, int kColumns>
using GroupedPlainTile = GemmTile<false, kRows / 64, kColumns, 1, false, GemmKind::kGrouped>;
template <int kRows, int kColumns>
using GroupedSwappedTile = GemmTile<true, kRows / 64, kColumns, 1, false, GemmKind::kGrouped>;
template <int kRows, int kColumns>
using GroupedTurnedTile = GemmTile<false, kRows / 64, kColumns, 1, false, GemmKind::kGrouped, true>;
template <int kRows, int kColumns>
using HeadPlainTile = GemmTile<false, kRows / 64, kColumns, 1, false, GemmKind::kHeads>;
template <int kRows, int kColumns>
using HeadTurnedTile = GemmTile<false, kRows / 64, kColumns, 1, false, GemmKind::kHeads, true>;

struct GemmProblem {
  CUtensorMap a;  // boxes of a tile's rows x 64; for weights, a block's share of the rows
  CUtensorMap b;  // boxes of a tile's columns x 64; for weights, a block's share of the columns
  CUtensorMap y;  // boxes of 64 x 64; plain order and bf16 only
  CUtensorMap shared;  // the shared expert's weights, with the same boxes; grouped only
  void* y_base;
  const __nv_bfloat16* bias;
  int64_t y_stride;  // in elements
  bool y_is_f32;
  bool overlap;     // programmatic dependent launch: may start before earlier kernels end
  int tokens;       // m of the product
  int features;     // n of the product
  int rows;         // rows of A that a stage has room for, a multiple of 8
  int columns;      // rows of B that a stage has room for
  int tile_tokens;  // tokens per tile, at most the stage's room for x; the remaining rows are
                    // undefined, and results from them are not stored
  bool weights_read_once;  // only one tile reads each weight
  bool whole_boxes;        // one copy fills all boxes of an operand in a stage
  int last_token;          // upper bound on a tile's first token
  int last_feature;        // upper bound on a tile's first feature
  int stages;
  int row_clusters;
  int column_clusters;
  int tiles;  // cluster tiles: row_clusters * column_clusters
  int k_blocks;
  int band;  // height of a band, in row clusters
  int lead;
  // Grouped only.
  const int32_t* offsets;    // [experts + 1]: rows [offsets[e], offsets[e + 1]) of x are expert e's
  int listed_experts;        // experts that have offsets
  int experts;               // listed experts, then the shared expert if any, whose rows come last
  int end_row;               // end of the shared expert's rows
  bool one_x_row;            // x has a single row, which all experts use
  bool offsets_are_written;  // before this kernel starts; swapped tiles only
  // The shared expert has one token tile. Its tiles come first instead of last, so that their
  // position is known before the offsets are written. Swapped tiles only.
  bool shared_first;
  // Grouped and heads.
  int feature_tiles;  // per expert or head
  int weight_rows;    // rows of the weight operand from one expert or head to the next
  // Heads only.
  int token_tiles;
  int64_t y_head_stride;  // elements from a head's part of a row of y to the next
};

// These functions return constants if the variant fixes the value.
template <class Tile>
__device__ __forceinline__ int tile_rows(const GemmProblem& p) {
  return Tile::kFewerRows ? p.rows : Tile::kRows;
}
template <class Tile>
__device__ __forceinline__ int tile_columns(const GemmProblem& p) {
  return Tile::kSwap && Tile::kBoxes > 1 ? p.columns : Tile::kColumns;
}
template <class Tile>
__device__ __forceinline__ int stage_count(const GemmProblem& p) {
  return Tile::kFewerRows ? p.stages : Tile::count_stages(Tile::kRows, 1);
}

// Index of a 64-row block within its tile. `block` counts over all warpgroups.
template <class Tile>
__device__ __forceinline__ int row_block(int block) {
  return Tile::kPingPong ? block % Tile::kRowBlocks : block;
}

// A thread block's tile: its first row and column in D, the first row of its weights in memory, the
// end of the tokens that it may store, and its head. In a grouped product head 1 means the shared
// expert.
struct TilePosition {
  int row;
  int column;
  int weights;
  int end_token;
  int head = 0;
};

// Tiles are ordered by bands of row clusters, and by columns within a band. The tiles in flight
// then form a nearly square part of the output, whose operands stay in L2.
template <class Tile>
__device__ __forceinline__ TilePosition locate_tile(const GemmProblem& p, int tile, int rank) {
  const int band_tiles = p.band * p.column_clusters;
  const int band = tile / band_tiles;
  const int first = band * p.band;
  const int height = min(p.band, p.row_clusters - first);
  const int within = tile - band * band_tiles;
  const int row = (first + within % height) * Tile::kRowCluster + (Tile::kSwap ? 0 : rank);
  const int column = within / height * Tile::kColumnCluster + (Tile::kSwap ? rank : 0);
  if constexpr (Tile::kSwap) {
    const int feature = min(row * p.rows, p.last_feature);
    return {feature, min(column * p.tile_tokens, p.last_token), feature, p.tokens};
  } else {
    const int feature = min(column * Tile::kColumns, p.last_feature);
    return {min(row * p.tile_tokens, p.last_token), feature, feature, p.tokens};
  }
}

}  // namespace slimexx::kernels
