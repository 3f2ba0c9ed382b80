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
constexpr int kExpertsOfLane = kMaxExperts / 32 + 1;  // with a shared one
constexpr int kFirstTileBytes = (kMaxExperts + 4) * 4;

// Ping-pong: one warpgroup computes a tile of 128 rows, the other computes the next one, so that
// one stores while the other multiplies. Else cooperative: all warpgroups compute one tile, 64 rows
// each. Grouped: rows of x belong to experts, each with weights of its own, and a tile's tokens are
// of one expert. Heads: a product for each head, of its part of every token's row with weights of
// its own. Turned: B is [k, b], its columns along the rows of memory.
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
  static constexpr int kRowBlocks = kPingPong ? 2 : 1;         // of 64 rows, in a warpgroup
  static constexpr int kTileGroups = kPingPong ? 1 : kGroups;  // warpgroups at work on one tile
  static constexpr int kRows = 64 * kRowBlocks * kTileGroups;
  static constexpr int kColumns = kTileColumns;
  // Blocks of a cluster take the same features of different tokens. Each loads its share of the
  // weights into all of them.
  static constexpr int kCluster = kClusterBlocks;
  static constexpr int kRowCluster = kSwap ? 1 : kCluster;
  static constexpr int kColumnCluster = kSwap ? kCluster : 1;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);

  // Narrow tiles take two boxes a stage, by one copy where k allows: issuing copies, at about 100
  // clocks each, would else bound the stream.
  static constexpr int kBoxes = kWarpgroups == 1 && kTileColumns <= 128 && !kHeads ? 2 : 1;
  static constexpr int kBlockK = kBoxes * kBoxK;

  // Output staging of one warpgroup: up to 64 x 64 outputs at a time. Where there are more, two
  // buffers alternate, unless three warpgroups leave too little for the stages, or ping-pong hides
  // the stores anyway. Narrow plain tiles are stored from registers.
  static constexpr bool kStaged = kSwap || kColumns > 64;
  static constexpr int kBuffers = kColumns > 64 && kWarpgroups < 3 && !kPingPong ? 2 : 1;
  static constexpr int kStagingBytes =
      !kStaged ? 0 : kBuffers * (kSwap && kColumns < 64 ? kColumns * 128 : 8192);
  // Stages may hold fewer rows than the products read: up to 56 more rows are read from the memory
  // after them, into accumulators that are not stored.
  static constexpr bool kFewerRows = kSwap || kGroups == 1;
  static constexpr int kOverreadBytes = kFewerRows ? 56 * 128 : 0;
  static constexpr int kFixedBytes = 1024 + kOverreadBytes + kGroups * kStagingBytes +
                                     kBarrierBytes +
                                     (kGrouped ? kFirstTileBytes * (kSwap ? 2 : 1) + 8 : 0);

  // Bytes of a stage with room for these rows of A and rows of B (`columns`).
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
  static_assert(kColumns % (8 * kRowCluster) == 0, "a share of the weights is whole swizzle atoms");
};

// By output rows x columns: rows of x by columns of w, or swapped, rows of w by columns of x.
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
  CUtensorMap a;       // boxes of the rows of a tile x 64; of weights, of its share of them
  CUtensorMap b;       // boxes of the columns of a tile x 64, or share
  CUtensorMap y;       // boxes of 64 x 64; plain order and bf16 only
  CUtensorMap shared;  // as that of the weights, of a shared expert; grouped alone
  void* y_base;
  const __nv_bfloat16* bias;
  int64_t y_stride;  // in elements
  bool y_is_f32;
  bool overlap;     // with the kernels before this one
  int tokens;       // m of the product
  int features;     // n of the product
  int rows;         // of A that a stage has room for, a multiple of 8
  int columns;      // the same of B
  int tile_tokens;  // that a tile takes of x, at most its rows or columns; the rest of the room
                    // holds anything, and what is computed from it is not stored
  bool weights_read_once;  // by one tile
  bool whole_boxes;        // one copy fills all boxes of an operand in a stage
  int last_token;          // first token and first feature of a tile are at most these
  int last_feature;
  int stages;
  int row_clusters;
  int column_clusters;
  int tiles;  // of a whole cluster each: row_clusters * column_clusters
  int k_blocks;
  int band;  // in clusters of row tiles
  int lead;
  // Grouped alone.
  const int32_t* offsets;    // [experts + 1]: rows [offsets[e], offsets[e + 1]) of x are expert e's
  int listed_experts;        // that have offsets
  int experts;               // the listed ones and the shared one, if any, whose rows follow
  int end_row;               // of those
  bool one_x_row;            // x is the one row of all
  bool offsets_are_written;  // when this kernel starts; swapped tiles only
  // The tiles of the shared expert, which has one tile of tokens, come first instead of last,
  // because their position is known before the offsets. Swapped tiles only.
  bool shared_first;
  // Grouped and heads: of one expert or head.
  int feature_tiles;
  int weight_rows;  // of the weights' operand from one to the next
  // Heads alone.
  int token_tiles;
  int64_t y_head_stride;  // elements from a head's part of a row of y to the next
};

// Constants where the variant fixes them.
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

// Blocks of 64 rows are counted over all warpgroups; this is the place of one within its tile.
template <class Tile>
__device__ __forceinline__ int row_block(int block) {
  return Tile::kPingPong ? block % Tile::kRowBlocks : block;
}

// Position of a block's tile: its first row and column in D, the first row of its weights in
// memory, the end of the tokens that it may store, and its head if the product has heads. With
// experts, head 1 is the shared expert.
struct TilePosition {
  int row;
  int column;
  int weights;
  int end_token;
  int head = 0;
};

// Bands of row clusters; inside a band columns advance slowest. So the tiles in flight at a time
// form a near-square patch of the output whose operands stay in L2.
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
