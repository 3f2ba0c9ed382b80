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

// Releases a stage that the calling warp has read: to the loaders of its own block, and of the
// other blocks of the cluster that write to this stage.
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

// The scales of a K block. Plain: for each of the thread's two rows, the row's scale times the
// scale of each unit of columns. Swapped, few columns: the scales of the two rows times the scales
// of the thread's columns. Swapped, more columns: the scales of the two rows; the columns' scales
// stay in shared memory.
template <class Tile>
struct BlockScales {
  static constexpr bool kProducts = Tile::kSwap && Tile::kEarlyScales;
  static constexpr int kPerRow = kProducts ? Tile::kColumns / 4 : Tile::kSwap ? 1 : Tile::kUnits;
  float low[kPerRow], high[kPerRow];
  const float* columns;

  __device__ __forceinline__ void read(const float* slot, ScaleColumns own) {
    columns = slot + kSlotUnits + own.first_token + 2 * (threadIdx.x % 4);
    if constexpr (kProducts) {
      const float of_low = slot[own.low], of_high = slot[own.high];
#pragma unroll
      for (int j = 0; j < kPerRow / 2; ++j) {
        const float2 x = read_scales(columns + 8 * j);
        low[2 * j] = __fmul_rn(x.x, of_low);
        low[2 * j + 1] = __fmul_rn(x.y, of_low);
        high[2 * j] = __fmul_rn(x.x, of_high);
        high[2 * j + 1] = __fmul_rn(x.y, of_high);
      }
    } else if constexpr (Tile::kSwap) {
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
  __device__ __forceinline__ static float2 read_scales(const float* from) {
    if constexpr (Tile::kGrouped) return {from[0], from[1]};  // may begin at any token
    return *reinterpret_cast<const float2*>(from);
  }
  __device__ __forceinline__ void add(const Float8Sums<Tile>& t, Float8Sums<Tile>& sums) const {
#pragma unroll
    for (int j = 0; j < Tile::kColumns / 8; ++j) {
      float scale[4];
      if constexpr (kProducts) {
        scale[0] = low[2 * j];
        scale[1] = low[2 * j + 1];
        scale[2] = high[2 * j];
        scale[3] = high[2 * j + 1];
      } else if constexpr (Tile::kSwap) {
        const float2 x = read_scales(columns + 8 * j);
        scale[0] = __fmul_rn(x.x, low[0]);
        scale[1] = __fmul_rn(x.y, low[0]);
        scale[2] = __fmul_rn(x.x, high[0]);
        scale[3] = __fmul_rn(x.y, high[0]);
      } else {
        const int unit = Tile::kGateUp ? j % 2 : j / (Tile::kScaleColumns / 8);
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
// next K block to add. After the products of K block number `signal_block` are queued, the next
// warpgroup may pass `barrier`.
template <class Tile>
struct Float8Walk {
  const Float8Operands<Tile>& operands;
  StageCursor& next;
  StageCursor& done;
  ScaleColumns own;
  int signal_block;
  int barrier;

  // Queues the products of the next kCount K blocks, as one group of wgmma.
  template <int kCount>
  __device__ __forceinline__ void start(Float8Sums<Tile> (&t)[kCount]) {
    uint32_t offsets[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      wait(operands.full + 8 * next.stage, next.parity);
      offsets[i] = next.stage * operands.stage_step;
      next.advance(operands.stages);
    }
    wgmma_fence();
    // With few columns a wgmma takes longer than its operations when it adds to the result of the
    // previous wgmma. So the chains of the K blocks alternate.
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const uint64_t a = complete_descriptor(operands.rows + offsets[i]);
        const uint64_t b = complete_descriptor(operands.columns + offsets[i]);
        wgmma_f8_k32(t[i], a + step * kDescriptorStepK16, b + step * kDescriptorStepK16, step > 0);
      }
    }
    wgmma_commit();
    if constexpr (Tile::kGroups > 1) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (signal_block-- == 0) arrive_named(barrier, 256);
      }
    }
  }
  // Adds kCount K blocks in ascending order. kPending: groups of products queued after t's.
  template <int kPending, int kCount>
  __device__ __forceinline__ void add(Float8Sums<Tile> (&t)[kCount], Float8Sums<Tile>& sums) {
    int stages[kCount];
    BlockScales<Tile> scales[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      stages[i] = done.stage;
      done.advance(operands.stages);
      scales[i].read(operands.slots + stages[i] * Tile::kSlotFloats, own);
    }
    wgmma_wait<kPending>();
#pragma unroll
    for (auto& block : t) pin_registers(block);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (Tile::kEarlyScales) release_float8_stage(operands, stages[i]);
      scales[i].add(t[i], sums);
      if constexpr (!Tile::kEarlyScales) release_float8_stage(operands, stages[i]);
    }
  }
};

// The products of one batch overlap the additions of the previous batch. batches: at least 1.
template <class Tile, int kBatch>
__device__ __forceinline__ void multiply_in_turn(int batches, Float8Walk<Tile>& walk,
                                                 Float8Sums<Tile> (&t)[kBatch],
                                                 Float8Sums<Tile>& sums) {
  Float8Sums<Tile> other[kBatch] = {};
#pragma unroll
  for (auto& block : other) pin_registers(block);
  walk.start(t);
  int batch = 0;
  for (; batch + 2 < batches; batch += 2) {
    walk.start(other);
    walk.template add<1>(t, sums);
    walk.start(t);
    walk.template add<1>(other, sums);
  }
  if (batch + 1 < batches) {
    walk.start(other);
    walk.template add<1>(t, sums);
    walk.template add<0>(other, sums);
  } else {
    walk.template add<0>(t, sums);
  }
}

template <class Tile>
__device__ __forceinline__ void multiply_float8_tile(int k_blocks, Float8Walk<Tile> walk,
                                                     Float8Sums<Tile>& sums) {
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  // Pinned, so that the compiler sets the registers here and not while products are in flight.
  Float8Sums<Tile> t[Tile::kBatch] = {};
  pin_registers(sums);
#pragma unroll
  for (auto& block : t) pin_registers(block);
  if constexpr (Tile::kTemporaries == 1) {
    for (int block = 0; block < k_blocks; ++block) {
      walk.start(t);
      walk.template add<0>(t, sums);
    }
  } else if constexpr (Tile::kBatch == 1) {
    multiply_in_turn(k_blocks, walk, t, sums);
  } else {
    if (k_blocks >= Tile::kBatch) multiply_in_turn(k_blocks / Tile::kBatch, walk, t, sums);
    for (int rest = k_blocks % Tile::kBatch; rest > 0; --rest) {
      Float8Sums<Tile> last[1] = {};
      pin_registers(last[0]);
      walk.start(last);
      walk.template add<0>(last, sums);
    }
  }
}

}  // namespace slimexx::kernels
