// The persistent FP8 product: one warpgroup loads tiles through a ring of shared-memory stages, one
// to three warpgroups multiply and store.
//
// Roles: in warpgroup 0 a thread of warp 0 loads rows, one of warp 1 columns, and warps 2 and 3 the
// scales (load.cuh). The other warpgroups multiply 64 rows each (multiply.cuh) and store with the
// epilogue of gemm/. Barriers per stage: full, an arrival of each loading thread and one of a
// scales' warp; empty, one of each computing warp of the cluster. Named barriers: 1 + group belongs
// to a warpgroup while it stores; 8 + group starts a warpgroup `lead` K blocks after the one before
// it, so that they do not all store at the same time; 12 ends the quantisation of x. Bits: an
// output is one chain in one warpgroup (float8.h).
#pragma once
#include "kernels/float8/multiply.cuh"
#include "kernels/gemm/kernel.cuh"

namespace slimexx::kernels {

template <class Tile, class Epilogue>
__device__ void multiply_float8_tiles(const Float8Problem& p, const Epilogue& epilogue,
                                      const Float8Shared<Tile>& shared, int rank, int group) {
  constexpr int kOrderBarrier = 8;
  const Float8Operands<Tile> operands(p, shared, group);
  if constexpr (Tile::kQuantises) quantise_input(p, shared);
  const bool staggered = Tile::kGroups > 1 && p.lead > 0;
  int signal_block = staggered && group + 1 < Tile::kGroups ? min(p.lead, p.k_blocks) - 1 : -1;
  StageCursor next, done;
  if (staggered && group > 0) sync_named(kOrderBarrier + group, 256);
  await_previous_grids();  // earlier kernels may still read y's memory
  const int clusters = gridDim.x / Tile::kCluster;
  for (int tile = blockIdx.x / Tile::kCluster; tile < p.tiles; tile += clusters) {
    const Float8Position position = locate_float8_tile<Tile>(p, tile, rank);
    const ScaleColumns own = ScaleColumns::of<Tile>(position.row, group)
                                 .template shifted<Tile>(Tile::kQuantises ? position.column : 0);
    Float8Sums<Tile> sums;
    multiply_float8_tile<Tile>(
        p.k_blocks, {operands, next, done, own, signal_block, kOrderBarrier + 1 + group}, sums);
    signal_block = -1;
    epilogue.template finish<Tile>(p, sums, position.row + 64 * group, position.column, p.tokens,
                                   shared.staging + group * Tile::kStagingBytes, group);
    __syncwarp();
  }
  if (!Tile::kSwap && threadIdx.x % 128 == 0) wait_stores();
}

template <class Tile>
__device__ __forceinline__ void init_float8_barriers(const Float8Problem& p, uint64_t* barriers,
                                                     uint32_t arrivals) {
  for (int stage = 0; stage < float8_stages<Tile>(p); ++stage) {
    init_mbarrier(barriers + stage, arrivals);
  }
  fence_mbarrier_init();
  fence_shared_for_async();
}

template <class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    float8_gemm_kernel(const __grid_constant__ Float8Problem p,
                       const __grid_constant__ Epilogue epilogue) {
  constexpr int kStages =
      count_float8_stages<Tile>(Tile::kRows, Tile::kQuantises ? kMostInputBytes : 0);
  static_assert(kStages >= 4 && kStages >= 2 * Tile::kBatch);
  extern __shared__ uint8_t raw[];
  const Float8Shared<Tile> shared(raw, p);
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
  if (warp == 3 && elect_lane()) {
    prefetch_tensor_map(&p.a);
    if (!Tile::kQuantises) prefetch_tensor_map(&p.b);
    if (!Tile::kSwap && !p.y_is_f32) prefetch_tensor_map(&p.y);
  }
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
      load_float8_rows<Tile>(p, shared, rank);
    }
    if (columns_loader && !Tile::kQuantises) {
      if (Tile::kSwap) await_previous_grids();
      load_float8_columns<Tile>(p, shared, rank);
    }
    if (warp >= 2) load_float8_scales<Tile>(p, shared, rank, warp - 2);
    __syncwarp();
  } else {
    if constexpr (Tile::kMoveRegisters) grow_registers<Tile::kGroups == 2 ? 232 : 160>();
    multiply_float8_tiles<Tile>(p, epilogue, shared, rank, warp / 4 - 1);
    __syncwarp();
  }
  // Other blocks of the cluster may write to this block's shared memory and barriers until they
  // finish.
  if constexpr (Tile::kCluster > 1) sync_cluster();
}

}  // namespace slimexx::kernels
