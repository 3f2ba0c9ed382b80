// Tiles of the grouped FP8 product: shared memory, and where each tile is, from the experts'
// offsets on the device.
#pragma once
#include "kernels/common/sizes.h"
#include "kernels/float8/load.cuh"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {

static_assert(kMaxExperts == kMostExperts);

// All tokens of a tile belong to one expert. The thread blocks of a cluster have the same tokens
// and adjacent features.
template <class Base>
struct GroupedFloat8Tile : Base {
  static constexpr bool kGrouped = true;
  // Only products that quantise their few rows leave room for the next kernel.
  static constexpr int kBlocksPerSm = Base::kQuantises ? Base::kBlocksPerSm : 1;
  static constexpr int kSharedBytes = Base::kQuantises ? Base::kSharedBytes : kMaxSharedBytes;
  // An expert's rows begin anywhere, but the copy of their scales at a multiple of 4.
  static constexpr int kSlotFloats = Base::kSlotFloats + (Base::kQuantises ? 0 : 4);
  static constexpr int kFixedBytes = Base::kFixedBytes + 2 * kFirstTileBytes;

  static_assert(!Base::kSwap || Base::kCluster == 1);
};

template <class Tile>
struct GroupedFloat8Shared : Float8Shared<Tile> {
  int* first_tiles;  // [experts + 1]: first token tile of each expert, then the total
  int* first_rows;   // [experts + 1]: the offsets

  __device__ GroupedFloat8Shared(uint8_t* raw, const Float8Problem& p)
      : Float8Shared<Tile>(raw, p) {
    first_tiles = reinterpret_cast<int*>(this->slots + float8_stages<Tile>(p) * Tile::kSlotFloats);
    first_rows = first_tiles + kFirstTileBytes / 4;
  }
};

// One warp counts the token tiles of all experts.
template <class Tile>
__device__ __forceinline__ void count_expert_tiles(const Float8Problem& p,
                                                   const GroupedFloat8Shared<Tile>& shared) {
  constexpr int kRounds = kMaxExperts / 32;
  const int lane = threadIdx.x % 32;
  int first[kRounds], end[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    if (32 * i >= p.experts) break;
    // Read from L2: the L1 may still hold another layer's offsets.
    first[i] = __ldcg(p.offsets + min(32 * i + lane, p.experts));
    end[i] = __ldcg(p.offsets + min(32 * i + lane + 1, p.experts));
  }
  int before = 0;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    if (32 * i >= p.experts) break;
    const int expert = 32 * i + lane, own = divide_up(end[i] - first[i], p.tile_tokens);
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffff, sum, step);
      if (lane >= step) sum += other;
    }
    if (expert < p.experts) {
      shared.first_tiles[expert] = before + sum - own;
      shared.first_rows[expert] = first[i];
    }
    before += __shfl_sync(0xffffffff, sum, 31);
    if (lane == 31) {
      shared.first_tiles[p.experts] = before;
      shared.first_rows[p.experts] = end[i];
    }
  }
}

template <class Tile>
__device__ __forceinline__ int count_tiles(const Float8Problem& p,
                                           const GroupedFloat8Shared<Tile>& shared) {
  return shared.first_tiles[p.experts] * p.feature_tiles;
}

struct GroupedFloat8Position {
  int row, column;  // first row and column in D; features count within the expert
  int weights;      // the first row of weights as an operand, over all experts
  int end_token;    // end of the expert's rows
};

// The order is that of grouped tiles in gemm/load.cuh. For a tile past the last one, the position
// is still within the weights.
template <class Tile>
__device__ __forceinline__ GroupedFloat8Position find_tile(const Float8Problem& p,
                                                           const GroupedFloat8Shared<Tile>& shared,
                                                           int tile, int rank) {
  const int token_tile = tile / p.feature_tiles;
  const int within = tile - token_tile * p.feature_tiles;
  const int feature = min(
      (within * Tile::kCluster + rank) * (Tile::kSwap ? p.rows : Tile::kColumns), p.last_feature);
  int expert = 0, above = p.experts;
  while (above - expert > 1) {  // the last expert whose first tile is not after this tile
    const int middle = (expert + above) / 2;
    if (shared.first_tiles[middle] <= token_tile) {
      expert = middle;
    } else {
      above = middle;
    }
  }
  const int token =
      shared.first_rows[expert] + (token_tile - shared.first_tiles[expert]) * p.tile_tokens;
  const int weights = expert * p.weight_rows + feature, end = shared.first_rows[expert + 1];
  return Tile::kSwap ? GroupedFloat8Position{feature, token, weights, end}
                     : GroupedFloat8Position{token, feature, weights, end};
}

}  // namespace slimexx::kernels
