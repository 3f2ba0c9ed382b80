// The chain of a warpgroup over K for one tile: the products of each K block start from zero, and
// are then multiplied by the scales and added to the sums.
#pragma once
#include "kernels/common/wgmma_f8.cuh"
#include "kernels/float8/block_scales.cuh"
#include "kernels/float8/input.cuh"

namespace slimexx::kernels {

// Addresses of a warpgroup's operands, as in StageOperands of gemm/multiply.cuh.
template <class Tile>
struct Float8Operands {
  uint32_t rows, columns;  // lower halves of the descriptors in stage 0
  uint32_t stage_step;
  uint32_t full, empty;
  const float* slots;
  int stages;
  // Quantising tiles: the place of the scales of x relative to `slots`, and the rows and the pitch
  // of x in shared memory.
  int x_scales = 0, x_rows = 0, pitch = 0;

  __device__ __forceinline__ Float8Operands(const Float8Problem& p,
                                            const Float8Shared<Tile>& shared, int group)
      : slots(shared.slots), stages(float8_stages<Tile>(p)) {
    rows = static_cast<uint32_t>(describe_swizzled_tile(shared.rows(0) + group * 64 * kBlockBytes));
    if constexpr (Tile::kQuantises) {
      x_scales = static_cast<int>(input_scales(p, shared) - slots);
      x_rows = p.x_rows;
      pitch = p.x_pitch;
      columns = describe_chunked_tile(shared.input, pitch);
    } else {
      columns = static_cast<uint32_t>(describe_swizzled_tile(shared.columns(0)));
    }
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
  // Quantising tiles: the columns of `next`, and the scales of x of `done`.
  uint32_t next_columns = operands.columns + own.first_token;
  int done_scales = operands.x_scales + own.first_token;

  // The descriptor of B for a step of 32 elements. `lower`: its lower half at the first step.
  __device__ __forceinline__ uint64_t describe_columns(uint32_t lower, int step) const {
    if constexpr (Tile::kQuantises) {
      return complete_chunked_descriptor(lower + step * 2 * operands.pitch);
    }
    return complete_descriptor(lower) + step * kDescriptorStepK16;
  }
  // The products of the next kCount K blocks, one group of wgmma.
  template <int kCount>
  __device__ __forceinline__ void start(Float8Sums<Tile> (&t)[kCount]) {
    uint32_t rows[kCount], columns[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      wait(operands.full + 8 * next.stage, next.parity);
      rows[i] = operands.rows + next.stage * operands.stage_step;
      columns[i] =
          Tile::kQuantises ? next_columns : operands.columns + next.stage * operands.stage_step;
      next_columns += 8 * operands.pitch;
      next.advance(operands.stages);
    }
    wgmma_fence();
    // With few columns a wgmma takes longer than its operations when it adds to the result of the
    // previous wgmma. So the chains of the K blocks alternate.
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const uint64_t a = complete_descriptor(rows[i]) + step * kDescriptorStepK16;
        wgmma_f8_k32(t[i], a, describe_columns(columns[i], step), step > 0);
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
      const float* slot = operands.slots + stages[i] * Tile::kSlotFloats;
      scales[i].read(
          slot,
          Tile::kQuantises ? operands.slots + done_scales : slot + kSlotUnits + own.first_token,
          own);
      done_scales += operands.x_rows;
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
