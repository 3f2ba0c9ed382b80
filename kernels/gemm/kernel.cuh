// The persistent GEMM kernel: one warpgroup loads tiles through a ring of shared-memory stages, one
// or two warpgroups multiply and store. Each block (or cluster of two) walks its own list of tiles.
#pragma once
#include "kernels/common/wgmma.cuh"
#include "kernels/gemm/epilogue.cuh"

namespace slimexx::kernels {

template <class Tile>
struct GemmShared {
  uint8_t* stages;   // each: kBoxes row boxes, then kBoxes column boxes
  uint8_t* staging;  // kGroups buffers
  uint64_t* full;    // per stage: bytes have landed
  uint64_t* empty;   // per stage: every consumer warp of the cluster has read it
  int row_box_bytes;
  int stage_bytes;

  __device__ GemmShared(uint8_t* raw, const GemmProblem& p) {
    row_box_bytes = tile_rows<Tile>(p) * 128;
    stage_bytes = Tile::stage_bytes(tile_rows<Tile>(p));
    // The offset of the dynamic part is the same in all blocks, so peers agree on every address.
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    staging = stages + stage_count<Tile>(p) * stage_bytes + Tile::kOverreadBytes;
    full = reinterpret_cast<uint64_t*>(staging + Tile::kGroups * Tile::kStagingBytes);
    empty = full + kMaxStages;
  }
  __device__ __forceinline__ uint8_t* row_box(int stage, int box) const {
    return stages + stage * stage_bytes + box * row_box_bytes;
  }
  __device__ __forceinline__ uint8_t* column_box(int stage, int box) const {
    return stages + stage * stage_bytes + Tile::kBoxes * row_box_bytes +
           box * Tile::kColumnBoxBytes;
  }
};

template <class Tile>
__device__ __forceinline__ void load_rows(const GemmProblem& p, const GemmShared<Tile>& shared,
                                          int stage, TilePosition tile, int rank, int block) {
  uint64_t* full = shared.full + stage;
  arrive_expect_bytes(full, shared.stage_bytes);
  const int row = (tile.row_cluster * Tile::kCluster + rank) * tile_rows<Tile>(p);
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
    load_box(shared.row_box(stage, box), &p.a, full, block * Tile::kBlockK + box * kBoxK, row);
  }
}

// Each block of a cluster loads its share of the columns into all of them.
template <class Tile>
__device__ __forceinline__ void load_columns(const GemmProblem& p, const GemmShared<Tile>& shared,
                                             int stage, TilePosition tile, int rank, int block) {
  constexpr int kShare = Tile::kColumns / Tile::kCluster;
  uint64_t* full = shared.full + stage;
  const int column = tile.column * Tile::kColumns + rank * kShare;
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
    uint8_t* dst = shared.column_box(stage, box) + rank * kShare * 128;
    const int k = block * Tile::kBlockK + box * kBoxK;
    if constexpr (Tile::kCluster > 1) {
      load_box_multicast(dst, &p.b, full, k, column, (1 << Tile::kCluster) - 1);
    } else {
      load_box(dst, &p.b, full, k, column);
    }
  }
}

// One thread of the block runs this. Before the previous kernel has ended only weights are read:
// in swapped order they are the rows, and fill all stages of the first tile.
template <class Tile>
__device__ void load_tiles(const GemmProblem& p, const GemmShared<Tile>& shared, int rank) {
  const int stages = stage_count<Tile>(p);
  const int clusters = gridDim.x / Tile::kCluster;
  const int first = blockIdx.x / Tile::kCluster;
  const int early = Tile::kSwap ? min(stages, p.k_blocks) : 0;
  for (int block = 0; block < early; ++block) {
    load_rows(p, shared, block, locate_tile(p, first), rank, block);
  }
  await_previous_grids();
  StageCursor cursor;
  for (int tile = first; tile < p.tiles; tile += clusters) {
    const TilePosition position = locate_tile(p, tile);
    for (int block = 0; block < p.k_blocks; ++block) {
      if (tile != first || block >= early) {
        wait(shared.empty + cursor.stage, cursor.parity ^ 1);
        load_rows(p, shared, cursor.stage, position, rank, block);
      }
      load_columns(p, shared, cursor.stage, position, rank, block);
      cursor.advance(stages);
    }
  }
}

// Every warp releases a stage for itself, in all blocks whose producers write to it.
template <class Tile>
__device__ __forceinline__ void release_stage(const GemmShared<Tile>& shared, int stage) {
  const int lane = threadIdx.x % 32;
  if constexpr (Tile::kCluster > 1) {
    if (lane < Tile::kCluster) arrive_at_rank(shared.empty + stage, lane);
  } else {
    if (lane == 0) arrive(shared.empty + stage);
  }
}

template <class Tile>
__device__ __forceinline__ void multiply_stage(const GemmShared<Tile>& shared, int stage, int group,
                                               float (&acc)[Tile::kColumns / 2], bool first) {
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
    const uint64_t a = describe_swizzled_tile(shared.row_box(stage, box) + group * 64 * 128);
    const uint64_t b = describe_swizzled_tile(shared.column_box(stage, box));
#pragma unroll
    for (int step = 0; step < kBoxK / 16; ++step) {
      const bool accumulate = !first || box != 0 || step != 0;
      wgmma_k16(acc, a + step * kDescriptorStepK16, b + step * kDescriptorStepK16, accumulate);
    }
  }
}

// One tile's chain over K. The products of one stage stay in flight while the next is awaited.
template <class Tile>
__device__ __forceinline__ void multiply_tile(const GemmProblem& p, const GemmShared<Tile>& shared,
                                              StageCursor& cursor, int group,
                                              float (&acc)[Tile::kColumns / 2], int signal_block) {
  int previous = 0;
  for (int block = 0; block < p.k_blocks; ++block) {
    wait(shared.full + cursor.stage, cursor.parity);
    wgmma_fence();
    multiply_stage<Tile>(shared, cursor.stage, group, acc, block == 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (block != 0) release_stage<Tile>(shared, previous);
    if (block == signal_block) arrive_named(15, 256);
    previous = cursor.stage;
    cursor.advance(stage_count<Tile>(p));
  }
  wgmma_wait<0>();
  pin_registers(acc);
  release_stage<Tile>(shared, previous);
}

// What becomes of a warpgroup's sums: here y. Other families pass a type of their own with this
// member. Row and column are those of the accumulator's corner in D; `staging` is the warpgroup's
// shared memory of Tile::kStagingBytes, and named barrier 1 + group is its own.
struct StoreProduct {
  template <class Tile>
  __device__ __forceinline__ void finish(const GemmProblem& p, float (&acc)[Tile::kColumns / 2],
                                         int row, int column, uint8_t* staging, int group) const {
    if constexpr (Tile::kSwap) {
      const int count = min(min(tile_rows<Tile>(p) - group * 64, 64), p.features - row);
      if (p.bias != nullptr) add_row_bias(p, acc, row);
      if (p.y_is_f32) {
        store_swapped_f32(p, acc, column, row, count);
      } else {
        store_swapped(p, acc, staging, 1 + group, column, row, count);
      }
    } else {
      if (p.bias != nullptr) add_column_bias(p, acc, column);
      if (p.y_is_f32) {
        store_plain_f32(p, acc, row, column);
      } else {
        store_plain(p, acc, staging, 1 + group, row, column);
      }
    }
  }
};

template <class Tile, class Epilogue>
__device__ __forceinline__ void finish_tile(const GemmProblem& p, const Epilogue& epilogue,
                                            const GemmShared<Tile>& shared, TilePosition tile,
                                            int rank, int group, float (&acc)[Tile::kColumns / 2]) {
  uint8_t* staging = shared.staging + group * Tile::kStagingBytes;
  const int row = (tile.row_cluster * Tile::kCluster + rank) * tile_rows<Tile>(p) + group * 64;
  epilogue.template finish<Tile>(p, acc, row, tile.column * Tile::kColumns, staging, group);
}

template <class Tile, class Epilogue>
__device__ void multiply_tiles(const GemmProblem& p, const Epilogue& epilogue,
                               const GemmShared<Tile>& shared, int rank, int group) {
  float acc[Tile::kColumns / 2];
  StageCursor cursor;
  // The second warpgroup starts `lead` K blocks late and stays so: then one multiplies while the
  // other stores, and the tensor cores do not idle between tiles.
  const bool staggered = Tile::kGroups == 2 && p.lead > 0;
  int signal_block = staggered && group == 0 ? min(p.lead, p.k_blocks) - 1 : -1;
  if (staggered && group == 1) sync_named(15, 256);
  const int clusters = gridDim.x / Tile::kCluster;
  for (int tile = blockIdx.x / Tile::kCluster; tile < p.tiles; tile += clusters) {
    multiply_tile<Tile>(p, shared, cursor, group, acc, signal_block);
    signal_block = -1;
    await_previous_grids();  // they may still read what y overwrites
    finish_tile<Tile>(p, epilogue, shared, locate_tile(p, tile), rank, group, acc);
    __syncwarp();
  }
  if (!Tile::kSwap && threadIdx.x % 128 == 0) wait_stores();
}

template <class Tile>
__device__ __forceinline__ void init_barriers(const GemmProblem& p,
                                              const GemmShared<Tile>& shared) {
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&p.a);
    prefetch_tensor_map(&p.b);
    if (!Tile::kSwap && !p.y_is_f32) prefetch_tensor_map(&p.y);
    for (int stage = 0; stage < stage_count<Tile>(p); ++stage) {
      init_mbarrier(shared.full + stage, 1);
      init_mbarrier(shared.empty + stage, Tile::kCluster * Tile::kGroups * 4);
    }
    fence_mbarrier_init();
  }
}

template <class Tile>
__device__ __forceinline__ void sync_all() {
  if constexpr (Tile::kCluster > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
}

template <class Tile, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_kernel(const __grid_constant__ GemmProblem p, const __grid_constant__ Epilogue epilogue) {
  static_assert(Tile::count_stages(Tile::kRows, 1) >= 3);
  extern __shared__ uint8_t raw[];
  const GemmShared<Tile> shared(raw, p);
  const int rank = Tile::kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  // Only the widest accumulators need registers moved from the loading warpgroup.
  constexpr bool kMoveRegisters = Tile::kGroups == 2 && Tile::kColumns == 256;
  init_barriers<Tile>(p, shared);
  sync_all<Tile>();
  allow_next_grid();
  if (threadIdx.x < 128) {
    if constexpr (kMoveRegisters) shrink_registers<40>();
    if (threadIdx.x < 32 && elect_lane()) load_tiles<Tile>(p, shared, rank);
    __syncwarp();
  } else {
    if constexpr (kMoveRegisters) grow_registers<232>();
    multiply_tiles<Tile>(p, epilogue, shared, rank, threadIdx.x / 128 - 1);
    __syncwarp();
  }
  // Peers still write to this block's shared memory and barriers until they are done as well.
  if constexpr (Tile::kCluster > 1) sync_cluster();
}

}  // namespace slimexx::kernels
