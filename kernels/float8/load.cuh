// Shared memory of a block of the FP8 product, and the threads that fill its ring of stages: one
// thread loads rows, one loads columns (not in a QuantisingTile), and two warps load scales.
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/warp_release.cuh"
#include "kernels/float8/tile.cuh"
#include "kernels/gemm/swiglu/swiglu_weights.cuh"

namespace slimexx::kernels {

template <class Tile>
struct Float8Shared {
  uint8_t* stages;   // each: the rows of A, then those of B
  uint8_t* staging;  // one buffer per warpgroup
  uint8_t* input;    // the quantised x: see input.cuh; otherwise empty
  float* slots;      // scales of each stage
  uint64_t* full;    // per stage: both operands and the scales have arrived
  uint64_t* empty;   // per stage: read by every consumer warp of the cluster
  int row_bytes;
  int stage_bytes;

  __device__ Float8Shared(uint8_t* raw, const Float8Problem& p) {
    row_bytes = tile_rows<Tile>(p) * kBlockBytes;
    stage_bytes = float8_stage_bytes<Tile>(tile_rows<Tile>(p));
    // Dynamic shared memory starts at the same offset in all blocks of a cluster.
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    staging = stages + float8_stages<Tile>(p) * stage_bytes + Tile::kOverreadBytes;
    input = staging + Tile::kGroups * Tile::kStagingBytes;
    full = reinterpret_cast<uint64_t*>(input + (Tile::kQuantises ? p.input_bytes : 0));
    empty = full + kFloat8MaxStages;
    slots = reinterpret_cast<float*>(empty + kFloat8MaxStages);
  }
  __device__ __forceinline__ uint8_t* rows(int stage) const { return stages + stage * stage_bytes; }
  __device__ __forceinline__ uint8_t* columns(int stage) const { return rows(stage) + row_bytes; }
  __device__ __forceinline__ float* slot(int stage) const {
    return slots + stage * Tile::kSlotFloats;
  }
};

// Arrivals at a full barrier.
template <class Tile>
inline constexpr uint32_t kFullArrivals = (Tile::kQuantises ? 1 : 2) + kArrivalsPerWarp;

template <class Tile>
__device__ __forceinline__ int count_tiles(const Float8Problem& p, const Float8Shared<Tile>&) {
  return p.tiles;
}
template <class Tile>
__device__ __forceinline__ Float8Position find_tile(const Float8Problem& p,
                                                    const Float8Shared<Tile>&, int tile, int rank) {
  return locate_float8_tile<Tile>(p, tile, rank);
}

// Calls load(position, K block, stage) for every K block of the thread block's tiles, when the
// stage is empty. kParts: only for K blocks `part`, `part` + kParts, ... of each tile.
template <int kParts = 1, template <class> class Shared, class Tile, class Load>
__device__ __forceinline__ void for_each_stage(const Float8Problem& p, const Shared<Tile>& shared,
                                               int rank, const Load& load, int part = 0) {
  StageCursor cursor;
  const int clusters = gridDim.x / Tile::kCluster, tiles = count_tiles(p, shared);
  for (int tile = blockIdx.x / Tile::kCluster; tile < tiles; tile += clusters) {
    const auto position = find_tile(p, shared, tile, rank);
    for (int block = 0; block < p.k_blocks; ++block) {
      if (block % kParts == part) {
        wait(shared.empty + cursor.stage, cursor.parity ^ 1);
        load(position, block, cursor.stage);
      }
      cursor.advance(float8_stages<Tile>(p));
    }
  }
}

// In a cluster a block loads its share of the rows and multicasts it to all blocks.
template <class Tile>
__device__ void load_float8_rows(const Float8Problem& p, const Float8Shared<Tile>& shared,
                                 int rank) {
  const uint64_t hint = Tile::kSwap && p.weights_read_once ? kEvictFirst : kEvictNormal;
  for_each_stage(p, shared, rank, [&](Float8Position position, int block, int stage) {
    uint64_t* full = shared.full + stage;
    arrive_expect_bytes(full, shared.row_bytes);
    if constexpr (Tile::kCluster > 1) {
      const int share = tile_rows<Tile>(p) / Tile::kCluster;
      uint8_t* own = shared.rows(stage) + rank * share * kBlockBytes;
      const int row = position.row + rank * share;
      constexpr uint16_t kAll = (1 << Tile::kCluster) - 1;
      if constexpr (Tile::kGateUp && Tile::kSwap) {
        load_gate_up_multicast(own, &p.a, full, row, block, kAll);
      } else {
        load_box_multicast(own, &p.a, full, block * kBlockBytes, row, kAll);
      }
    } else if constexpr (Tile::kGateUp && Tile::kSwap) {
      load_gate_up(shared.rows(stage), &p.a, full, position.row, block, hint);
    } else {
      load_box_hinted(shared.rows(stage), &p.a, full, block * kBlockBytes, position.row, hint);
    }
  });
}

template <class Tile>
__device__ void load_float8_columns(const Float8Problem& p, const Float8Shared<Tile>& shared,
                                    int rank) {
  const uint64_t hint = !Tile::kSwap && p.weights_read_once ? kEvictFirst : kEvictNormal;
  for_each_stage(p, shared, rank, [&](Float8Position position, int block, int stage) {
    uint64_t* full = shared.full + stage;
    arrive_expect_bytes(full, p.columns * kBlockBytes);
    if constexpr (Tile::kGateUp && !Tile::kSwap) {
      load_gate_up(shared.columns(stage), &p.b, full, position.column, block, hint);
    } else {
      load_box_hinted(shared.columns(stage), &p.b, full, block * kBlockBytes, position.column,
                      hint);
    }
  });
}

// The unit of scales of a row of weights; gate-up: the unit of its gate row.
template <class Tile>
__device__ __forceinline__ int first_unit_of(int row) {
  return row / (static_cast<int>(kFp8UnitRows) * (Tile::kGateUp ? 2 : 1));
}

// Scales of the tile's units of weights: lane i holds those of K block `first` + i.
template <class Tile>
struct UnitScales {
  float values[Tile::kUnits];
  // `weights`: the tile's first row in the weight operand of one expert. `before`: the index of
  // that expert's first unit.
  __device__ __forceinline__ UnitScales(const Float8Problem& p, int weights, int first,
                                        int before = 0) {
    const int block = min(first + static_cast<int>(threadIdx.x % 32), p.k_blocks - 1);
    constexpr int kHalf = Tile::kGateUp ? Tile::kUnits / 2 : Tile::kUnits;
    constexpr bool kParts = !Tile::kSwap && Tile::kScaleColumns < kFp8UnitRows;
    const int first_unit = first_unit_of<Tile>(weights);
#pragma unroll
    for (int i = 0; i < Tile::kUnits; ++i) {
      const int own =
          kParts ? first_unit_of<Tile>(weights + i * Tile::kScaleColumns) : first_unit + i % kHalf;
      const int unit = min(own, p.last_unit) + i / kHalf * (p.last_unit + 1);
      values[i] = __ldg(p.w_scales + (before + unit) * p.w_scale_stride + block);
    }
  }
  // Lane i receives the scale of unit i.
  __device__ __forceinline__ float spread(int block) const {
    float own = 0;
#pragma unroll
    for (int i = 0; i < Tile::kUnits; ++i) {
      const float value = __shfl_sync(0xffffffff, values[i], block % 32);
      if (threadIdx.x % 32 == i) own = value;
    }
    return own;
  }
};

// The scales of a slot that belong to this thread's accumulators.
struct ScaleColumns {
  int low = 0, high = 0;  // plain: its rows' tokens; swapped: its rows' units of weights
  int first_token = 0;    // swapped: the place of the tile's first token among the slot's tokens;
                          // quantising tiles: among all tokens of x
  template <class Tile>
  __device__ __forceinline__ static ScaleColumns of(int tile_row, int group) {
    const int row = 64 * group + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    if constexpr (!Tile::kSwap) return {kSlotUnits + row, kSlotUnits + row + 8};
    // Rows past the tile are not stored, so any unit in the slot will do.
    constexpr int kLast = Tile::kUnits / (Tile::kGateUp ? 2 : 1) - 1;
    const auto unit_of = [tile_row](int within) {
      return min(first_unit_of<Tile>(tile_row + within) - first_unit_of<Tile>(tile_row), kLast);
    };
    // Gate-up: rows l / 4 of a warp's 16 are of gate, rows l / 4 + 8 of up, of the same feature.
    if constexpr (Tile::kGateUp) {
      const int unit = unit_of(row / 16 * 16 + row % 8 * 2);
      return {unit, kLast + 1 + unit};
    }
    return {unit_of(row), unit_of(row + 8)};
  }
  // The columns of the same tile if its first token is number `tokens` in the slot.
  template <class Tile>
  __device__ __forceinline__ ScaleColumns shifted(int tokens) const {
    if constexpr (Tile::kSwap) return {low, high, tokens};
    return {low + tokens, high + tokens};
  }
};

// After a warp has written a slot's scales of weights: loads the scales of x from `token` on, and
// arrives.
template <class Tile>
__device__ __forceinline__ void complete_slot(const Float8Problem& p, float* slot, uint64_t* full,
                                              int block, int token) {
  if constexpr (Tile::kQuantises) {
    release(shared_address(full));
  } else {
    constexpr int kTokens = Tile::kSlotFloats - kSlotUnits;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      const auto bytes = static_cast<uint32_t>(min(int64_t{kTokens}, p.x_scale_stride - token) * 4);
      arrive_expect_bytes(full, bytes);
      load_bytes(slot + kSlotUnits, p.x_scales + block * p.x_scale_stride + token, bytes, full);
    } else if (kArrivalsPerWarp == 32) {
      arrive(full);
    }
  }
  __syncwarp();
}

// Two warps load the scales, `part` 0 those of even K blocks and 1 those of odd ones: one alone is
// slower than products of few rows. They read the first scales of weights before earlier kernels
// have ended.
template <class Tile>
__device__ void load_float8_scales(const Float8Problem& p, const Float8Shared<Tile>& shared,
                                   int rank, int part) {
  const int lane = threadIdx.x % 32;
  const Float8Position first =
      locate_float8_tile<Tile>(p, static_cast<int>(blockIdx.x) / Tile::kCluster, rank);
  UnitScales<Tile> scales(p, Tile::kSwap ? first.row : first.column, 0);
  if constexpr (!Tile::kQuantises) await_previous_grids();
  const auto load = [&](Float8Position position, int block, int stage) {
    const int weights = Tile::kSwap ? position.row : position.column;
    const int token = Tile::kSwap ? position.column : position.row;
    if (block % 32 == part) scales = UnitScales<Tile>(p, weights, block - part);
    const float own = scales.spread(block);
    float* slot = shared.slot(stage);
    if (lane < Tile::kUnits) slot[lane] = own;
    complete_slot<Tile>(p, slot, shared.full + stage, block, token);
  };
  for_each_stage<2>(p, shared, rank, load, part);
}

}  // namespace slimexx::kernels
