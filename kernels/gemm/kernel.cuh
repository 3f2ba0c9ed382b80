// The persistent GEMM kernel: one warpgroup loads tiles through a ring of shared-memory stages, one
// to three warpgroups multiply and store. Each block, or cluster of blocks, has its own sequence of
// tiles.
//
// Roles: in warpgroup 0 one thread of warp 0 loads weights, and one of warp 1 loads tokens
// (load.cuh). The other warpgroups multiply (multiply.cuh) and store (epilogue.cuh, or another
// family's epilogue). Barriers per stage: full, 2 arrivals (both loaders, with their bytes); empty,
// one arrival per computing warp that works on a tile, over all blocks of the cluster. If a grouped
// product counts its tiles late (counts_late): counted, 1 arrival, from warp 3. Named barriers: 1 +
// group belongs to a warpgroup while it stores; 14 and 15 order two warpgroups (staggered or
// ping-pong). Bits: every output is one chain of additions over k in one warpgroup, so no schedule
// changes it.
#pragma once
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/multiply.cuh"

namespace slimexx::kernels {

// The default epilogue: stores a warpgroup's sums as y. Other families pass their own epilogue with
// the same member function. `row` and `column`: position in D of the accumulator's first element.
// The tile must not store tokens from end_token on, nor more than p.tile_tokens. `staging` is the
// warpgroup's shared memory of Tile::kStagingBytes; named barrier 1 + group belongs to the
// warpgroup. `group` counts 64-row blocks over all warpgroups; row_block gives the block's index
// within the tile.
struct StoreProduct {
  template <class Tile>
  __device__ __forceinline__ void finish(const GemmProblem& p, float (&acc)[Tile::kColumns / 2],
                                         int row, int column, int end_token, uint8_t* staging,
                                         int group) const {
    if constexpr (Tile::kSwap) {
      const int count = min(min(tile_rows<Tile>(p) - group * 64, 64), p.features - row);
      const int tokens = min(p.tile_tokens, end_token - column);
      if (p.bias != nullptr) add_row_bias(p, acc, row);
      if (p.y_is_f32) {
        store_swapped_f32(p, acc, column, tokens, row, count);
      } else {
        store_swapped<Tile::kBuffers>(p, acc, staging, 1 + group, column, tokens, row, count);
      }
    } else {
      const int block = row_block<Tile>(group);
      const int tokens = min(min(p.tile_tokens - block * 64, 64), end_token - row);
      if (p.bias != nullptr) add_column_bias(p, acc, column);
      if (p.y_is_f32) {
        store_plain_pairs<float>(p, acc, row, tokens, column);
      } else {
        if constexpr (Tile::kStaged) {
          if (Tile::kGroups > 1 || tokens > kFewTokens) {
            store_plain<Tile::kBuffers>(p, acc, staging, 1 + group, row, tokens, column);
            return;
          }
        }
        if constexpr (Tile::kGroups == 1)
          store_plain_pairs<__nv_bfloat16>(p, acc, row, tokens, column);
      }
    }
  }
};

template <class Tile, class Epilogue>
__device__ __forceinline__ void finish_tile(const GemmProblem& p, const Epilogue& epilogue,
                                            const GemmShared<Tile>& shared, TilePosition tile,
                                            int group, Sums<Tile>& sums) {
  uint8_t* staging = shared.staging + group * Tile::kStagingBytes;
#pragma unroll
  for (int i = 0; i < Tile::kRowBlocks; ++i) {
    const int block = group * Tile::kRowBlocks + i;
    const int row = tile.row + row_block<Tile>(block) * 64;
    if constexpr (Tile::kHeads) {
      epilogue.template finish_head<Tile>(p, sums[i], row, tile.column, tile.head, staging, block);
    } else {
      epilogue.template finish<Tile>(p, sums[i], row, tile.column, tile.end_token, staging, block);
    }
  }
}

// Moves the cursor past the stages of a tile that the other warpgroup multiplies.
template <class Tile>
__device__ __forceinline__ void skip_tile(const GemmProblem& p, StageCursor& cursor) {
  const int stages = stage_count<Tile>(p);
  const int next = cursor.stage + p.k_blocks;
  cursor.stage = next % stages;
  cursor.parity ^= next / stages & 1;
}

template <class Tile, class Epilogue>
__device__ void multiply_tiles(const GemmProblem& p, const Epilogue& epilogue,
                               const GemmShared<Tile>& shared, int rank, int group) {
  const StageOperands<Tile> operands(shared, group);
  Sums<Tile> sums;
  StageCursor cursor;
  const int clusters = gridDim.x / Tile::kCluster;
  if (counts_late<Tile>(p)) wait(shared.counted, 0);
  const int tiles = count_tiles(p, shared);
  int tile = blockIdx.x / Tile::kCluster;
  // The second warpgroup starts `lead` K blocks late and keeps this distance: one multiplies while
  // the other stores, and the tensor cores do not idle between tiles. A grouped product may have
  // fewer tiles than thread blocks; a block without tiles sends no signal.
  const bool staggered = Tile::kTileGroups == 2 && p.lead > 0 && (!Tile::kGrouped || tile < tiles);
  int signal_block = staggered && group == 0 ? min(p.lead, p.k_blocks) - 1 : -1;
  constexpr int kOrderBarrier = 14;  // named barrier of group 0; group 1 waits at the next barrier
  if (staggered && group == 1) sync_named(kOrderBarrier + 1, 256);
  await_previous_grids();  // earlier kernels may still read y's memory
  const int step = Tile::kPingPong ? Tile::kGroups : 1;  // a warpgroup takes every step-th tile
  if (Tile::kPingPong && group == 1) {
    tile += clusters;
    skip_tile<Tile>(p, cursor);
  }
  for (; tile < tiles; tile += step * clusters) {
    const TilePosition position = find_tile(p, shared, tile, rank);
    if constexpr (Tile::kPingPong) {
      // The parity of a stage's barrier distinguishes only consecutive rounds of the ring, so a
      // warpgroup must not wait for a tile while the previous tile is still being read.
      if (tile >= clusters) sync_named(kOrderBarrier + group, 256);
      signal_block = tile + clusters < tiles ? p.k_blocks - 1 : -1;
    }
    multiply_tile<Tile>(p, operands, cursor, sums, signal_block,
                        Tile::kPingPong ? kOrderBarrier + 1 - group : kOrderBarrier + 1);
    signal_block = -1;
    if constexpr (Tile::kPingPong) skip_tile<Tile>(p, cursor);
    finish_tile<Tile>(p, epilogue, shared, position, group, sums);
    __syncwarp();
  }
  if (Tile::kStaged && !Tile::kSwap && threadIdx.x % 128 == 0) wait_stores();
}

template <class Tile>
__device__ __forceinline__ void init_barriers(const GemmProblem& p, uint64_t* barriers,
                                              int arrivals) {
  for (int stage = 0; stage < stage_count<Tile>(p); ++stage) {
    init_mbarrier(barriers + stage, arrivals);
  }
  fence_mbarrier_init();
  fence_shared_for_async();
}

template <class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_kernel(const __grid_constant__ GemmProblem p, const __grid_constant__ Epilogue epilogue) {
  static_assert(Tile::count_stages(Tile::kRows, 1) >= 3);
  extern __shared__ uint8_t raw[];
  const GemmShared<Tile> shared(raw, p);
  const int rank = Tile::kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  // The computing warpgroups need the loading warpgroup's registers only for wide accumulators.
  constexpr bool kMoveRegisters = (Tile::kGroups == 2 && Tile::kRowBlocks * Tile::kColumns > 192) ||
                                  (Tile::kGroups == 3 && Tile::kColumns > 128);
  // The shuffle shows the compiler that the value is uniform in a warp, so that addresses and loop
  // counters stay in uniform registers.
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const bool weights_loader = warp == 0 && elect_lane();
  const bool tokens_loader = warp == 1 && elect_lane();
  if (weights_loader) init_barriers<Tile>(p, shared.full, 2);
  if (tokens_loader) init_barriers<Tile>(p, shared.empty, Tile::kCluster * Tile::kTileGroups * 4);
  if (warp == 2 && elect_lane()) {
    prefetch_tensor_map(&p.a);
    prefetch_tensor_map(&p.b);
    if (Tile::kStaged && !Tile::kSwap && !p.y_is_f32) prefetch_tensor_map(&p.y);
  }
  const bool late = counts_late<Tile>(p);
  if constexpr (Tile::kGrouped) {
    if (warp == 2 && elect_lane()) init_mbarrier(shared.counted, 1);
    if (!late) {
      if (!p.offsets_are_written) await_previous_grids();  // earlier kernels write the offsets
      if (warp == 3) count_expert_tiles(p, shared);
    }
  }
  if constexpr (Tile::kCluster > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (!late) allow_next_grid();
  if (Tile::kGrouped && late && warp == 3) {
    await_previous_grids();
    count_expert_tiles(p, shared);
    __syncwarp();
    if (elect_lane()) arrive(shared.counted);
    allow_next_grid();  // not earlier: the next kernel's choice of weights may depend on the
                        // offsets
  }
  if (warp < 4) {
    if constexpr (kMoveRegisters) shrink_registers<Tile::kGroups == 2 ? 40 : 32>();
    if (weights_loader) load_tiles<Tile, true>(p, shared, rank);
    if (tokens_loader) {
      await_previous_grids();  // before this only weights may be read
      if (late) wait(shared.counted, 0);
      load_tiles<Tile, false>(p, shared, rank);
    }
    if constexpr (Tile::kHeads && Tile::kGroups == 1) {
      if (warp >= 2) epilogue.template work_beside<Tile>(p, warp - 2);
    }
    __syncwarp();
  } else {
    if constexpr (kMoveRegisters) grow_registers<Tile::kGroups == 2 ? 232 : 160>();
    multiply_tiles<Tile>(p, epilogue, shared, rank, warp / 4 - 1);
    __syncwarp();
  }
  // Other blocks of the cluster may write to this block's shared memory and barriers until they
  // finish.
  if constexpr (Tile::kCluster > 1) sync_cluster();
}

}  // namespace slimexx::kernels
