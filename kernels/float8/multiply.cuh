// The chain of a warpgroup over K for one tile: the products of each K block start from zero, and
// are then multiplied by the scales and added to the sums.
#pragma once
#include "kernels/common/wgmma_f8.cuh"
#include "kernels/float8/load.cuh"

namespace slimexx::kernels {

template <class Tile>
using Float8Sums = float[Tile::kColumns / 2];

// Addresses of a warpgroup's operands, as in StageOperands of gemm/multiply.cuh.
template <class Tile>
struct Float8Operands {
  uint32_t rows, columns;  // lower halves of the descriptors in stage 0
  uint32_t stage_step;
  uint32_t full, empty;
  const float* slots;
  int stages;

  __device__ __forceinline__ Float8Operands(const Float8Problem& p,
                                            const Float8Shared<Tile>& shared, int group)
      : slots(shared.slots), stages(float8_stages<Tile>(p)) {
    rows = static_cast<uint32_t>(describe_swizzled_tile(shared.rows(0) + group * 64 * kBlockBytes));
    columns = static_cast<uint32_t>(describe_swizzled_tile(shared.columns(0)));
    stage_step = static_cast<uint32_t>(shared.stage_bytes) >> 4;
    full = shared_address(shared.full);
    empty = shared_address(shared.empty);
    asm volatile("" : "+r"(rows), "+r"(columns), "+r"(full), "+r"(empty));
  }
};

// Called by a warp that has read a stage: releases it to its own block and to the others that write
// to it.
template <class Tile>
__device__ __forceinline__ void release_float8_stage(const Float8Operands<Tile>& operands,
                                                     int stage) {
  const uint32_t barrier = operands.empty + 8 * stage;
  if constexpr (Tile::kCluster == 1) {
    release(barrier);
  } else {
    __syncwarp();
#pragma unroll
    for (int rank = 0; rank < Tile::kCluster; ++rank) {
      if (kArrivalsPerWarp == 32 || threadIdx.x % 32 == rank) arrive_at_rank(barrier, rank);
    }
  }
}

// Which scales of a slot belong to this thread's accumulators.
struct ScaleColumns {
  int low = 0, high = 0;  // plain: its rows' tokens; swapped: its rows' units of weights
  template <class Tile>
  __device__ __forceinline__ static ScaleColumns of(int tile_row, int group) {
    const int row = 64 * group + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    if constexpr (!Tile::kSwap) return {kSlotUnits + row, kSlotUnits + row + 8};
    // Rows past the tile are not stored; their unit must only be one in the slot.
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
};

// The scales of a K block. Plain: for each of the thread's two rows, its scale times that of each
// unit of columns. Swapped: the scales of the two rows; those of the columns stay in shared memory.
template <class Tile>
struct BlockScales {
  static constexpr int kPerRow = Tile::kSwap ? 1 : Tile::kUnits;
  float low[kPerRow], high[kPerRow];
  const float* columns;

  __device__ __forceinline__ BlockScales(const float* slot, ScaleColumns own) {
    columns = slot + kSlotUnits + 2 * (threadIdx.x % 4);
    if constexpr (Tile::kSwap) {
      low[0] = slot[own.low];
      high[0] = slot[own.high];
    } else {
#pragma unroll
      for (int i = 0; i < kPerRow; ++i) {
        low[i] = __fmul_rn(slot[own.low], slot[i]);
        high[i] = __fmul_rn(slot[own.high], slot[i]);
      }
    }
  }
  __device__ __forceinline__ void add(const Float8Sums<Tile>& t, Float8Sums<Tile>& sums) const {
#pragma unroll
    for (int j = 0; j < Tile::kColumns / 8; ++j) {
      float scale[4];
      if constexpr (Tile::kSwap) {
        const float2 x = *reinterpret_cast<const float2*>(columns + 8 * j);
        scale[0] = __fmul_rn(x.x, low[0]);
        scale[1] = __fmul_rn(x.y, low[0]);
        scale[2] = __fmul_rn(x.x, high[0]);
        scale[3] = __fmul_rn(x.y, high[0]);
      } else {
        constexpr int kUnitGroups = static_cast<int>(kFp8UnitRows) / 8;
        const int unit = Tile::kGateUp ? j % 2 : j / kUnitGroups;
        scale[0] = scale[1] = low[unit];
        scale[2] = scale[3] = high[unit];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[4 * j + i] = __fmaf_rn(t[4 * j + i], scale[i], sums[4 * j + i]);
      }
    }
  }
};

// A tile's walk over K. `next` is the stage of the next K block to multiply, `done` that of the
// next one to add. After the products of K block number `signal_block` are queued, the next
// warpgroup may pass `barrier`.
template <class Tile>
struct Float8Walk {
  const Float8Operands<Tile>& operands;
  StageCursor& next;
  StageCursor& done;
  ScaleColumns own;
  int signal_block;
  int barrier;

  __device__ __forceinline__ void start_block(Float8Sums<Tile>& t) {
    wait(operands.full + 8 * next.stage, next.parity);
    wgmma_fence();
    const uint32_t offset = next.stage * operands.stage_step;
    const uint64_t a = complete_descriptor(operands.rows + offset);
    const uint64_t b = complete_descriptor(operands.columns + offset);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      wgmma_f8_k32(t, a + step * kDescriptorStepK16, b + step * kDescriptorStepK16, step > 0);
    }
    wgmma_commit();
    next.advance(operands.stages);
    if constexpr (Tile::kGroups > 1) {
      if (signal_block-- == 0) arrive_named(barrier, 256);
    }
  }
  // kPending: groups of products that were queued after t's.
  template <int kPending>
  __device__ __forceinline__ void add_block(Float8Sums<Tile>& t, Float8Sums<Tile>& sums) {
    const BlockScales<Tile> scales(operands.slots + done.stage * Tile::kSlotFloats, own);
    wgmma_wait<kPending>();
    pin_registers(t);
    if constexpr (!Tile::kSwap) release_float8_stage(operands, done.stage);
    scales.add(t, sums);
    if constexpr (Tile::kSwap) release_float8_stage(operands, done.stage);
    done.advance(operands.stages);
  }
};

template <class Tile>
__device__ __forceinline__ void multiply_float8_tile(int k_blocks, Float8Walk<Tile> walk,
                                                     Float8Sums<Tile>& sums) {
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  // Pinned, so that the compiler sets the registers here and not while products are in flight.
  Float8Sums<Tile> t{};
  pin_registers(sums);
  pin_registers(t);
  if constexpr (Tile::kTemporaries == 1) {
    for (int block = 0; block < k_blocks; ++block) {
      walk.start_block(t);
      walk.template add_block<0>(t, sums);
    }
  } else {
    Float8Sums<Tile> other{};
    pin_registers(other);
    walk.start_block(t);
    int block = 0;
    for (; block + 2 < k_blocks; block += 2) {
      walk.start_block(other);
      walk.template add_block<1>(t, sums);
      walk.start_block(t);
      walk.template add_block<1>(other, sums);
    }
    if (block + 1 < k_blocks) {
      walk.start_block(other);
      walk.template add_block<1>(t, sums);
      walk.template add_block<0>(other, sums);
    } else {
      walk.template add_block<0>(t, sums);
    }
  }
}

}  // namespace slimexx::kernels
