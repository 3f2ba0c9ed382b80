// Tiles of the experts' weight gradients in shared memory, and how their sums reach device memory:
// computing warps write pieces to buffers, and other threads store the buffers by TMA
// (product_weight_gradient.cu describes how the parts work together).
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/shared_pair.cuh"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels::weight_gradient {

constexpr int kTileN = 128, kTileK = 192, kRowsPerStage = 32;
constexpr int kSums = kTileK / 2;               // per thread
constexpr int kBoxBytes = kRowsPerStage * 128;  // 64 columns
constexpr int kDyBoxes = kTileN / kBoxColumns, kXBoxes = kTileK / kBoxColumns;
constexpr int kStageBytes = (kDyBoxes + kXBoxes) * kBoxBytes;
constexpr int kCluster = 2, kOwnRows = kRowsPerStage / kCluster;  // rows of x that a block loads
constexpr int kStages = 8;
// A warpgroup stores its sums in pieces of 64 rows x 32 columns, from kPieces buffers in turn.
constexpr int kPieces = 3, kTilePieces = kTileK / kF32BoxColumns;
constexpr int kPieceBytes = 64 * 128, kGroups = 2;
// At most this many stores may still read their buffers when the next one is queued; then the
// thread waits for the oldest and frees its buffer. The limit must be below kPieces, or no buffer
// would be free for the next piece.
constexpr int kStoresInFlight = 1;
static_assert(kStoresInFlight < kPieces);
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + kGroups * kPieces * kPieceBytes +
                             2 * (kStages + kGroups * kPieces) * 8;
static_assert(kStageBytes % 1024 == 0 && kSharedBytes <= 227 * 1024);
static_assert(kRowsPerStage <= kReadBehindExperts);
constexpr int kComputing = 256;  // threads
constexpr uint64_t kStepK16 = 16 * 128 >> 4;

struct WeightGradientProblem {
  CUtensorMap dy;  // boxes of kRowsPerStage x kBoxColumns
  CUtensorMap x;   // boxes of kOwnRows x kBoxColumns
  CUtensorMap dw;  // boxes of 64 rows x kF32BoxColumns of an expert
  const int32_t* offsets;
  int n, k, n_tiles, k_tiles, tiles;  // tiles of a cluster
  bool accumulate;
};

struct ExpertTile {
  int expert, n, k;     // n, k: first features of the tile
  int first_row, rows;  // of the expert
  // An expert without rows has one block, whose rows are all zeroed.
  __device__ int blocks() const { return max(1, divide_up(rows, kRowsPerStage)); }
};

__device__ __forceinline__ ExpertTile find_tile(const WeightGradientProblem& p, int tile,
                                                int rank) {
  const int of_expert = p.n_tiles * p.k_tiles;
  const int expert = tile / of_expert, within = tile - expert * of_expert;
  const int first = p.offsets[expert];
  const int n = (within / p.k_tiles * kCluster + rank) * kTileN;
  return {expert, n, within % p.k_tiles * kTileK, first, p.offsets[expert + 1] - first};
}

struct SharedTiles {
  uint8_t* stages;  // each: the boxes of dy, then those of x
  uint8_t* pieces;  // kPieces of each warpgroup
  uint64_t* full;
  uint64_t* empty;
  uint64_t* ready;    // per buffer of a piece
  uint64_t* written;  // per buffer of a piece

  __device__ explicit SharedTiles(uint8_t* raw) {
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    pieces = stages + kStages * kStageBytes;
    full = reinterpret_cast<uint64_t*>(pieces + kGroups * kPieces * kPieceBytes);
    empty = full + kStages;
    ready = empty + kStages;
    written = ready + kGroups * kPieces;
  }
  __device__ __forceinline__ uint8_t* dy(int stage) const { return stages + stage * kStageBytes; }
  __device__ __forceinline__ uint8_t* x(int stage) const {
    return dy(stage) + kDyBoxes * kBoxBytes;
  }
};

// Writes piece `piece` of a warpgroup's sums to `box`, 64 rows x 32 columns with the 128-byte
// swizzle; adds to the box's content if `accumulate`, otherwise overwrites it. A row of 128 bytes
// covers all banks. Odd rows are written in another column order than even rows, which avoids bank
// conflicts between neighbouring rows.
__device__ __forceinline__ void write_piece(uint32_t box, const float (&sums)[kSums], int piece,
                                            bool accumulate) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const bool odd = row % 2 != 0;
  // Index of the 16-byte chunk: 2 j + the lane's bit 1, xor the row's swizzle.
  const uint32_t chunk = static_cast<uint32_t>((lane / 2 % 2) ^ (row % 8) ^ (odd ? 4 : 0));
  const uint32_t at = box + row * 128 + lane % 2 * 8;
#pragma unroll
  for (int j = 0; j < kF32BoxColumns / 8; ++j) {
    const float* even_rows = sums + 4 * (piece * (kF32BoxColumns / 8) + j);
    const float* odd_rows = sums + 4 * (piece * (kF32BoxColumns / 8) + (j ^ 2));
    const uint32_t to = at + ((2 * j ^ chunk) << 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float2 value = odd ? make_float2(odd_rows[2 * i], odd_rows[2 * i + 1])
                         : make_float2(even_rows[2 * i], even_rows[2 * i + 1]);
      if (accumulate) {
        const float2 before = read_pair(to + i * 8 * 128);
        value.x += before.x;
        value.y += before.y;
      }
      write_pair(to + i * 8 * 128, value);
    }
  }
}

// Walks a cluster's tiles in order. When accumulating, skips the tiles of experts without rows,
// which would not change the earlier gradient.
struct TileWalk {
  int tile;
  ExpertTile at;

  __device__ TileWalk(const WeightGradientProblem& p, int rank)
      : tile(static_cast<int>(blockIdx.x) / kCluster) {
    find(p, rank);
  }
  __device__ bool has_ended(const WeightGradientProblem& p) const { return tile >= p.tiles; }
  __device__ void advance(const WeightGradientProblem& p, int rank) {
    tile += static_cast<int>(gridDim.x) / kCluster;
    find(p, rank);
  }

 private:
  __device__ void find(const WeightGradientProblem& p, int rank) {
    for (; tile < p.tiles; tile += static_cast<int>(gridDim.x) / kCluster) {
      at = find_tile(p, tile, rank);
      if (at.rows > 0 || !p.accumulate) return;
    }
  }
};

// Walks the pieces of a warpgroup in the order in which they are stored.
struct PieceWalk {
  TileWalk tiles;
  int piece = 0;

  __device__ PieceWalk(const WeightGradientProblem& p, int rank) : tiles(p, rank) {}
  __device__ bool has_ended(const WeightGradientProblem& p) const { return tiles.has_ended(p); }
  // Position of the piece's box in dw.
  __device__ int expert() const { return tiles.at.expert; }
  __device__ int column() const { return tiles.at.k + piece * kF32BoxColumns; }
  __device__ int row(int group) const { return tiles.at.n + group * 64; }
  __device__ bool is_inside(const WeightGradientProblem& p, int group) const {
    return row(group) < p.n && column() < p.k;
  }
  __device__ void advance(const WeightGradientProblem& p, int rank) {
    if (++piece < kTilePieces) return;
    piece = 0;
    tiles.advance(p, rank);
  }
};

// One thread runs this for warpgroup `group`: it stores the pieces that the warpgroup has written,
// and frees their buffers for the next pieces.
inline __device__ void move_pieces(const WeightGradientProblem& p, const SharedTiles& shared,
                                   int rank, int group) {
  const int first = group * kPieces;
  PieceWalk filled(p, rank), stored(p, rank);  // `filled`: the next piece that gets a buffer
  RingCursor<kPieces> to_fill, to_store;
  const auto fill = [&] {
    if (filled.has_ended(p)) return;
    const auto buffer = first + static_cast<int>(to_fill.stage);
    if (filled.is_inside(p, group) && p.accumulate) {
      arrive_expect_bytes(shared.ready + buffer, kPieceBytes);
      load_box(shared.pieces + buffer * kPieceBytes, &p.dw, shared.ready + buffer, filled.column(),
               filled.row(group), filled.expert());
    } else {
      arrive(shared.ready + buffer);
    }
    to_fill.advance();
    filled.advance(p, rank);
  };
  for (int i = 0; i < kPieces; ++i) fill();
  int unfilled = 0;  // buffers whose pieces are queued to be stored
  while (!stored.has_ended(p)) {
    const auto buffer = first + static_cast<int>(to_store.stage);
    wait(shared.written + buffer, to_store.parity);
    if (stored.is_inside(p, group)) {
      store_box(&p.dw, shared.pieces + buffer * kPieceBytes, stored.column(), stored.row(group),
                stored.expert());
    }
    commit_stores();
    to_store.advance();
    stored.advance(p, rank);
    if (++unfilled > kStoresInFlight) {
      wait_stores_read<kStoresInFlight>();
      fill();
      --unfilled;
    }
  }
  wait_stores();
}

// Called by a warpgroup: writes piece `piece` of its sums to the next buffer and signals the
// storing thread.
__device__ __forceinline__ void leave_piece(const WeightGradientProblem& p,
                                            const SharedTiles& shared, int group,
                                            RingCursor<kPieces>& cursor, const float (&sums)[kSums],
                                            int piece) {
  const auto buffer = group * kPieces + static_cast<int>(cursor.stage);
  wait(shared.ready + buffer, cursor.parity);
  write_piece(shared_address(shared.pieces + buffer * kPieceBytes), sums, piece, p.accumulate);
  fence_shared_for_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(shared.written + buffer);
  cursor.advance();
}

}  // namespace slimexx::kernels::weight_gradient
