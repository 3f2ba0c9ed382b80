// The persistent grouped FP8 product: the kernel of kernel.cuh, whose tiles are found from the
// experts' offsets. Warp 3 counts the tiles; roles, barriers and bits are those of kernel.cuh.
#pragma once
#include "kernels/float8/grouped/load.cuh"
#include "kernels/float8/kernel.cuh"

namespace slimexx::kernels {

// Skips a tile's K blocks, because the tile has no tokens for this warpgroup.
template <class Tile>
__device__ __forceinline__ void skip_float8_tile(int k_blocks, Float8Walk<Tile> walk) {
  for (int block = 0; block < k_blocks; ++block) {
    wait(walk.operands.full + 8 * walk.next.stage, walk.next.parity);
    if constexpr (Tile::kGroups > 1) {
      if (walk.signal_block-- == 0) arrive_named(walk.barrier, 256);
    }
    release_float8_stage(walk.operands, walk.done.stage);
    walk.next.advance(walk.operands.stages);
    walk.done.advance(walk.operands.stages);
  }
}

template <class Tile, class Epilogue>
__device__ void multiply_grouped_tiles(const Float8Problem& p, const Epilogue& epilogue,
                                       const GroupedFloat8Shared<Tile>& shared, int rank,
                                       int group) {
  constexpr int kOrderBarrier = 8;
  const Float8Operands<Tile> operands(p, shared, group);
  if constexpr (Tile::kQuantises) quantise_input<Tile>(p, shared);
  const int clusters = gridDim.x / Tile::kCluster, tiles = count_tiles(p, shared);
  int tile = blockIdx.x / Tile::kCluster;
  // A thread block without tiles sends no signal.
  const bool staggered = Tile::kGroups > 1 && p.lead > 0 && tile < tiles;
  int signal_block = staggered && group + 1 < Tile::kGroups ? min(p.lead, p.k_blocks) - 1 : -1;
  StageCursor next, done;
  if (staggered && group > 0) sync_named(kOrderBarrier + group, 256);
  await_previous_grids();  // earlier kernels may still read y's memory
  for (; tile < tiles; tile += clusters) {
    const GroupedFloat8Position position = find_tile(p, shared, tile, rank);
    const int first = first_scale<Tile>(p, position);
    const ScaleColumns own = ScaleColumns::of<Tile>(position.row, group)
                                 .template shifted<Tile>(Tile::kQuantises ? first : first % 4);
    const Float8Walk<Tile> walk{operands, next, done, own, signal_block, kOrderBarrier + 1 + group};
    signal_block = -1;
    const int row = position.row + 64 * group;
    // The vote shows the compiler that the value is uniform in a warp.
    if (!Tile::kSwap && __all_sync(0xffffffff, row >= position.end_token)) {
      skip_float8_tile(p.k_blocks, walk);
      continue;
    }
    Float8Sums<Tile> sums;
    multiply_float8_tile<Tile>(p.k_blocks, walk, sums);
    epilogue.template finish<Tile>(p, sums, row, position.column, position.end_token,
                                   shared.staging + group * Tile::kStagingBytes, group);
    __syncwarp();
  }
  if (!Tile::kSwap && threadIdx.x % 128 == 0) wait_stores();
}

template <class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    grouped_float8_kernel(const __grid_constant__ Float8Problem p,
                          const __grid_constant__ Epilogue epilogue) {
  constexpr int kStages =
      count_float8_stages<Tile>(Tile::kRows, Tile::kQuantises ? kMostInputBytes : 0);
  static_assert(kStages >= 4 && kStages >= 2 * Tile::kBatch);
  extern __shared__ uint8_t raw[];
  const GroupedFloat8Shared<Tile> shared(raw, p);
  const int rank = Tile::kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  // The shuffle shows the compiler that the value is uniform in a warp.
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const bool rows_loader = warp == 0 && elect_lane();
  const bool columns_loader = warp == 1 && elect_lane();
  if (rows_loader) init_float8_barriers<Tile>(p, shared.full, kFullArrivals<Tile>);
  if (columns_loader) {
    init_float8_barriers<Tile>(p, shared.empty,
                               Tile::kCluster * Tile::kGroups * 4 * kArrivalsPerWarp);
  }
  if (warp == 2 && elect_lane()) {
    prefetch_tensor_map(&p.a);
    if (!Tile::kQuantises) prefetch_tensor_map(&p.b);
    if (!Tile::kSwap && !p.y_is_f32) prefetch_tensor_map(&p.y);
  }
  if (!p.offsets_are_written) await_previous_grids();  // earlier kernels write the offsets
  if (warp == 3) count_expert_tiles(p, shared);
  if constexpr (Tile::kCluster > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  allow_next_grid();
  if (warp < 4) {
    if constexpr (Tile::kMoveRegisters) shrink_registers<Tile::kGroups == 2 ? 40 : 32>();
    if (rows_loader) {
      if (!Tile::kSwap) await_previous_grids();  // before this only weights may be read
      load_grouped_rows(p, shared, rank);
    }
    if (columns_loader && !Tile::kQuantises) {
      if (Tile::kSwap) await_previous_grids();
      load_grouped_columns(p, shared, rank);
    }
    if (warp >= 2) load_grouped_scales(p, shared, rank, warp - 2);
    __syncwarp();
  } else {
    if constexpr (Tile::kMoveRegisters) grow_registers<Tile::kGroups == 2 ? 232 : 160>();
    multiply_grouped_tiles(p, epilogue, shared, rank, warp / 4 - 1);
    __syncwarp();
  }
  // Other blocks of the cluster may write to this block's shared memory and barriers until they
  // finish.
  if constexpr (Tile::kCluster > 1) sync_cluster();
}

}  // namespace slimexx::kernels
