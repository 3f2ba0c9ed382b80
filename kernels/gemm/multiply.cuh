// The main loop of a computing warpgroup: the chain of products over K for one tile.
#pragma once
#include "kernels/common/wgmma.cuh"
#include "kernels/gemm/load.cuh"

namespace slimexx::kernels {

// A warpgroup's accumulators, one array per block of 64 rows.
template <class Tile>
using Sums = float[Tile::kRowBlocks][Tile::kColumns / 2];

constexpr uint64_t kDescriptorRowBlock = 64 * 128 >> 4;
constexpr uint64_t kDescriptorTurnedStepK16 = 16 * 128 >> 4;  // 16 rows of k

// Addresses of a warpgroup's operands, computed once: the lower halves of the descriptors in stage
// 0, the steps to other stages and boxes in units of 16 bytes, and the barriers of stage 0. With
// few tokens every instruction between two stages delays the chain of products. The compiler would
// compute the addresses there, so the empty asm statement hides their origin.
template <class Tile>
struct StageOperands {
  uint32_t rows, columns;
  uint32_t stage_step, row_box_step, column_box_step;
  uint32_t full, empty;
  bool releases;  // this lane arrives for its warp; in a cluster, at the block of rank `lane`

  __device__ __forceinline__ StageOperands(const GemmShared<Tile>& shared, int group) {
    const int first_block = Tile::kPingPong ? 0 : group;
    rows = static_cast<uint32_t>(
        describe_swizzled_tile(shared.row_box(0, 0) + first_block * 64 * 128));
    columns = static_cast<uint32_t>(
        describe_swizzled_tile(shared.column_box(0, 0), Tile::kTurned ? kTurnedBoxBytes : 0));
    stage_step = static_cast<uint32_t>(shared.stage_bytes) >> 4;
    row_box_step = static_cast<uint32_t>(shared.row_box_bytes) >> 4;
    column_box_step = static_cast<uint32_t>(shared.column_box_bytes) >> 4;
    full = shared_address(shared.full);
    empty = shared_address(shared.empty);
    asm volatile("" : "+r"(rows), "+r"(columns), "+r"(full), "+r"(empty));
    releases = threadIdx.x % 32 < Tile::kCluster;
  }
};

// Each warp releases a stage by one arrival per block of the cluster: all blocks write to the
// stage.
template <class Tile>
__device__ __forceinline__ void release_stage(const StageOperands<Tile>& operands, int stage) {
  if (!operands.releases) return;
  if constexpr (Tile::kCluster > 1) {
    arrive_at_rank(operands.empty + 8 * stage, threadIdx.x % 32);
  } else {
    arrive(operands.empty + 8 * stage);
  }
}

// Multiplies the steps [kFirst, kEnd) of a stage; a step is 16 elements of k. `stage_offset`:
// distance from stage 0, in units of 16 bytes.
template <class Tile, int kFirst, int kEnd>
__device__ __forceinline__ void multiply_steps(const StageOperands<Tile>& operands,
                                               uint32_t stage_offset, Sums<Tile>& sums) {
#pragma unroll
  for (int i = kFirst; i < kEnd; ++i) {
    const int box = i / (kBoxK / 16), step = i % (kBoxK / 16);
    const uint64_t a =
        complete_descriptor(operands.rows + stage_offset + box * operands.row_box_step) +
        step * kDescriptorStepK16;
    const uint64_t b =
        complete_descriptor(operands.columns + stage_offset + box * operands.column_box_step);
#pragma unroll
    for (int block = 0; block < Tile::kRowBlocks; ++block) {
      const uint64_t block_rows = a + block * kDescriptorRowBlock;
      if constexpr (Tile::kTurned) {
        wgmma_k16_turned_b(sums[block], block_rows, b + step * kDescriptorTurnedStepK16, true);
      } else {
        wgmma_k16(sums[block], block_rows, b + step * kDescriptorStepK16, true);
      }
    }
  }
}

// The chain over K for one tile. The products of a stage stay in flight while the warpgroup waits
// for the next stage. A stage is released between the two halves of the next stage's products, so
// that the release delays no product. After the products of K block `signal_block` are queued, the
// other warpgroup may pass `barrier`.
template <class Tile>
__device__ __forceinline__ void multiply_tile(const GemmProblem& p,
                                              const StageOperands<Tile>& operands,
                                              StageCursor& cursor, Sums<Tile>& sums,
                                              int signal_block, int barrier) {
  constexpr int kSteps = Tile::kBlockK / 16;
#pragma unroll
  for (int i = 0; i < Tile::kRowBlocks; ++i) {
#pragma unroll
    for (float& sum : sums[i]) sum = 0.0f;
  }
  int previous = 0;
  uint32_t offset = cursor.stage * operands.stage_step;
  for (int block = 0; block < p.k_blocks; ++block) {
    wait(operands.full + 8 * cursor.stage, cursor.parity);
    wgmma_fence();
    multiply_steps<Tile, 0, kSteps / 2>(operands, offset, sums);
    wgmma_commit();
    wgmma_wait<1>();
    if (block != 0) release_stage<Tile>(operands, previous);
    multiply_steps<Tile, kSteps / 2, kSteps>(operands, offset, sums);
    wgmma_commit();
    if (Tile::kGroups > 1 && block == signal_block) arrive_named(barrier, 256);
    previous = cursor.stage;
    cursor.advance(stage_count<Tile>(p));
    offset = cursor.stage == 0 ? 0 : offset + operands.stage_step;
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < Tile::kRowBlocks; ++i) pin_registers(sums[i]);
  release_stage<Tile>(operands, previous);
}

}  // namespace slimexx::kernels
