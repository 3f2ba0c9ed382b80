// dQ: a thread block owns 128 queries of one head and walks the keys up to these queries, in
// ascending order.
//
// A warpgroup owns 64 queries: their rows of Q and dO stay in registers as the A operands of
// S = Q K^T and dP = dO V^T, and dS is the A operand of dQ += dS K. The next tile's S is issued
// before this tile's dQ, the next dP after it.
//
// Cost, head dim 128, per tile of 64 keys and 128 queries: 3 products of 2.1 MFLOP = 1536
// tensor-core clocks at 4096 FLOP/clk/SM; 8192 exponentials = 512 clocks at 16/clk/SM. Shared
// memory: 32 KB read for each product and 32 KB loaded = 1024 clocks at 128 B/clk.
//
// Roles: warpgroup 0 loads (one warp, load_items), warpgroups 1 and 2 compute (QueryWalk of
// query_walk.cuh). Barriers: the ring of key tiles, for each stage full (1 arrival, the loading
// warp) and empty (8, one for each computing warp); rows of Q and dO, for each warpgroup full (1)
// and empty (4); the queue of items, two deep, full (1) and empty (8).
#pragma once
#include "kernels/attention/problem.cuh"
#include "kernels/attention_backward/launch.cuh"
#include "kernels/attention_backward/query_walk.cuh"
#include "kernels/common/cluster.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {  // query_gradients.cu and query_gradients_of_spans.cu compile a kernel each

using namespace attention;
using Problem = attention_gradient::Problem;
using Launch = attention_gradient::Launch;
using query_walk::kStages;
using query_walk::QueryWalk;
using query_walk::Shared;

// Stages the rounded rows in shared memory and stores them with 16 bytes per thread.
template <int kHeadDim>
__device__ __forceinline__ void store_rows(const Problem& problem, const Item& item, int group,
                                           const float (&dq)[kHeadDim / 2], uint32_t staging,
                                           uint32_t barrier_id) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
  const int first_row = item.block * kBlockRows + group * kTile;
  sync_named(barrier_id, 128);  // the previous item's rows have been read from staging
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const uint32_t pair = pack_bf16(__fmul_rn(dq[4 * j + 2 * i], problem.scale),
                                      __fmul_rn(dq[4 * j + 2 * i + 1], problem.scale));
      const uint32_t to = staging + j / 8 * kBoxBytes + (row + 8 * i) * 128 +
                          ((j % 8) ^ (row % 8)) * 16 + lane % 4 * 4;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
    }
  }
  sync_named(barrier_id, 128);
  constexpr int kChunks = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < kTile * kChunks / 128; ++i) {
    const int r = (i * 128 + thread) / kChunks, chunk = thread % kChunks;
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(staging + chunk / 8 * kBoxBytes + r * 128 + ((chunk % 8) ^ (r % 8)) * 16));
    if (first_row + r >= item.length) continue;
    const int64_t token = item.first_token + first_row + r;
    *reinterpret_cast<uint4*>(problem.dq + token * problem.dq_stride + item.head * kHeadDim +
                              chunk * 8) = x;
  }
}

// The number of key tiles that the block's queries see.
__device__ __forceinline__ int tiles_of(const Item& item) {
  return min(2 * item.block + 2, divide_up(item.length, kTile));
}

template <int kHeadDim>
__device__ __forceinline__ void compute_items(const Problem& problem, uint32_t shared, int group) {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  QueryWalk<kHeadDim> walk{problem, {shared}};
  const uint32_t rows = shared + group * Layout::kGroupBytes;
  const uint32_t rows_full = shared + Layout::kRowsFullAt + group * 16;
  ItemQueue items{{shared + Layout::kItemsAt, {}}};
  for (Item item; (item = items.wait()).block >= 0; items.drop()) {
    const int first_row = item.block * kBlockRows + group * kTile;
    walk.read_log_sums(item, first_row);
    wait(rows_full, items.item_parity());
    walk.read_operand(walk.q, rows);
    walk.read_operand(walk.dout, rows + Ring::kTileBytes);
    release(rows_full + 8);
    walk.multiply_outputs(item, first_row, group);
    const int tiles = first_row < item.length ? first_row / kTile + 1 : 0;
    if (tiles > 0) {
      walk.walk(tiles);
      store_rows<kHeadDim>(problem, items.read(), group, walk.dq, rows + 2 * Ring::kTileBytes,
                           static_cast<uint32_t>(1 + group));
    }
    const int skipped = tiles_of(items.read()) - tiles;
    for (int tile = 0; tile < skipped; ++tile) walk.tiles.skip();
  }
}

// Takes the next item from the counter; all lanes get its number.
__device__ __forceinline__ int take_next(const Problem& problem) {
  int next = 0;
  if (threadIdx.x == 0)
    next = static_cast<int>(gridDim.x + atomicAdd(&problem.counters->next_query_item, 1u));
  return __shfl_sync(0xffffffffu, next, 0);
}

template <int kHeadDim, bool kSpans>
__device__ __forceinline__ void load_items(const Problem& problem, const CUtensorMap& q_map,
                                           const CUtensorMap& k_map, const CUtensorMap& v_map,
                                           const CUtensorMap& dout_map, const CUtensorMap& out_map,
                                           uint32_t shared) {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  const int lane = threadIdx.x;
  const auto kNothing = [](uint32_t, uint32_t) {};
  TileLoader<kHeadDim, kStages> loader{{shared + Layout::kRingAt, shared + Layout::kRingBarriersAt},
                                       {}};
  ItemQueue items{{shared + Layout::kItemsAt, {}}};
  Item item;
  int blocks = 0;
  uint32_t rows_parity = 1;
  for (int index = blockIdx.x;
       find_walk(problem, index, problem.query_heads, item, blocks, item.head);) {
    item.block = blocks - 1;
    if constexpr (kSpans) {
      if (const TileSpans spans = find_spans(problem, item);
          !spans.has(2 * item.block) && !spans.has(2 * item.block + 1)) {
        index = take_next(problem);
        continue;
      }
    }
    items.put(item);
    int next = 0;
    if (lane == 0)
      next = static_cast<int>(gridDim.x + atomicAdd(&problem.counters->next_query_item, 1u));
    const int first_row = item.first_token + item.block * kBlockRows;
    for (int group = 0; group < 2; ++group) {
      const uint32_t full = shared + Layout::kRowsFullAt + group * 16;
      wait(full + 8, rows_parity);
      if (lane == 0) arrive_expect_bytes(full, 2 * Ring::kTileBytes);
      __syncwarp();
      if (lane < 2 * Ring::kHalves) {
        load_box(shared + group * Layout::kGroupBytes + lane * kBoxBytes,
                 lane < Ring::kHalves ? &q_map : &dout_map, full,
                 lane % Ring::kHalves * kBoxColumns, item.head, first_row + group * kTile);
      }
    }
    rows_parity ^= 1;
    loader.load({out_map, out_map, item.head, first_row, first_row + kTile}, kTile, 0, kNothing);
    const int tiles = tiles_of(item);
    for (int tile = 0; tile < tiles; ++tile) {
      const int row = item.first_token + tile * kTile;
      loader.load({k_map, v_map, item.head / problem.group, row, row}, item.length - tile * kTile,
                  0, kNothing);
    }
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  item.block = -1;
  items.put(item);
}

template <int kHeadDim, bool kSpans>
__global__ void __launch_bounds__(kThreads, 1)
    compute_query_gradients(const __grid_constant__ Problem problem,
                            const __grid_constant__ CUtensorMap q_map,
                            const __grid_constant__ CUtensorMap k_map,
                            const __grid_constant__ CUtensorMap v_map,
                            const __grid_constant__ CUtensorMap dout_map,
                            const __grid_constant__ CUtensorMap out_map) {
  using Layout = Shared<kHeadDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&q_map);
    prefetch_tensor_map(&k_map);
    prefetch_tensor_map(&v_map);
    prefetch_tensor_map(&dout_map);
    prefetch_tensor_map(&out_map);
    typename Layout::Ring{shared + Layout::kRingAt, shared + Layout::kRingBarriersAt}.init(
        kComputingWarps);
    for (uint32_t group = 0; group < 2; ++group) {
      init_mbarrier(shared + Layout::kRowsFullAt + group * 16, 1);
      init_mbarrier(shared + Layout::kRowsFullAt + group * 16 + 8,
                    kComputingWarps / 2 * kArrivalsPerWarp);
    }
    ItemQueue{{shared + Layout::kItemsAt, {}}}.init(kComputingWarps);
    fence_mbarrier_init();
  }
  __syncthreads();
  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<24>();
    if (threadIdx.x < 32) {
      load_items<kHeadDim, kSpans>(problem, q_map, k_map, v_map, dout_map, out_map, shared);
    }
  } else {
    grow_registers<240>();
    compute_items<kHeadDim>(problem, shared, group);
  }
}

template <int kHeadDim, bool kSpans>
cudaError_t launch(const Launch& launch, int sm_count, cudaStream_t stream) {
  const Problem& p = launch.problem;
  const int64_t items = (p.tokens / kBlockRows + p.sequences) * p.query_heads;
  return launch_kernel(compute_query_gradients<kHeadDim, kSpans>, Shared<kHeadDim>::kBytes, items,
                       sm_count, stream, p, launch.q_map, launch.k_map, launch.v_map,
                       launch.dout_map, launch.out_map);
}

}  // namespace
}  // namespace slimexx::kernels::attention_gradient
