// Scores of a tile of queries against blocks of 64 keys of their sequence. Keys are the rows of the
// product, (query, head) pairs its columns: 1 query, or as many as make 256 columns. So the heads
// of a query lie in one quad of lanes, which weighs and adds them in registers.
//
// Roles: of warpgroup 0 one warp loads keys, one queries and weights with the item they belong to;
// warpgroups 1 and 2 compute, a block each in turn, so that one weighs while the other multiplies.
// Barriers: of a stage of keys full (1 arrival, the loading warp) and empty (4, lane 0 of each warp
// of the warpgroup that owns the block); of each of two tiles of queries full (2, copies and
// weights) and empty (8).
//
// Cost of a block of 64 keys of 128 elements: 16 KB, at 4.27 TB/s over 132 SMs 880 clocks. 256
// columns: products 1024 clocks at 4096 FLOP/clk/SM; for each warp 128 maxima at half rate, 128
// additions, 32 loads of weights and 12 shuffles, about 450, under the other warpgroup's products.
// So decode is bound by memory, and training by the tensor cores.
//
// Shared memory, 256 columns of 128 elements: two tiles of queries 128 KB, six stages of keys 96
// KB.
#pragma once
#include <algorithm>

#include "kernels/common/cluster.cuh"
#include "kernels/common/early_launch.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/operand.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/sparse_index/problem.cuh"

namespace slimexx::kernels::sparse_index {

// Shape: heads are padded to kHeads; kQueries of a tile; kBoxes of 64 elements.
template <int kHeadsPadded, int kTileQueries, int kColumnBoxes>
struct Shape {
  static constexpr int kHeads = kHeadsPadded, kQueries = kTileQueries, kBoxes = kColumnBoxes;
  static constexpr int kColumns = kHeads * kQueries;
  static_assert(kHeads % 8 == 0 && kColumns <= 256 && (kQueries == 1 || kQueries % 2 == 0));
};

template <class S>
struct Shared {
  static constexpr uint32_t kQueryBoxBytes = S::kColumns * 128;
  static constexpr uint32_t kQueryBytes = S::kBoxes * kQueryBoxBytes;
  static constexpr uint32_t kKeyBoxBytes = kBlock * 128;
  static constexpr uint32_t kKeyBytes = S::kBoxes * kKeyBoxBytes;
  static constexpr uint32_t kWeightBytes = S::kColumns * 4;
  static constexpr uint32_t kItemBytes = 32;
  static constexpr uint32_t kMost = 232448;
  static constexpr uint32_t kOthers = 2 * (kQueryBytes + kWeightBytes + kItemBytes) + 4 * 8;
  static constexpr uint32_t kStages = std::min<uint32_t>(12, (kMost - kOthers) / (kKeyBytes + 16));
  static constexpr uint32_t kKeysAt = 2 * kQueryBytes;
  static constexpr uint32_t kWeightsAt = kKeysAt + kStages * kKeyBytes;
  static constexpr uint32_t kItemsAt = kWeightsAt + 2 * kWeightBytes;
  static constexpr uint32_t kBarriersAt = kItemsAt + 2 * kItemBytes;
  static constexpr uint32_t kBytes = kBarriersAt + kStages * 16 + 4 * 8;
  static_assert(kBytes <= kMost && kQueryBoxBytes % 1024 == 0 && kStages >= 4);
  uint32_t base;

  // Tile `n` of the launch, and block `n` of its walk.
  __device__ __forceinline__ uint32_t queries(uint32_t n) const {
    return base + n % 2 * kQueryBytes;
  }
  __device__ __forceinline__ uint32_t weights(uint32_t n) const {
    return base + kWeightsAt + n % 2 * kWeightBytes;
  }
  __device__ __forceinline__ uint32_t item(uint32_t n) const {
    return base + kItemsAt + n % 2 * kItemBytes;
  }
  __device__ __forceinline__ uint32_t keys(uint32_t n) const {
    return base + kKeysAt + n % kStages * kKeyBytes;
  }
  __device__ __forceinline__ uint32_t keys_full(uint32_t n) const {
    return base + kBarriersAt + n % kStages * 16;
  }
  __device__ __forceinline__ uint32_t keys_empty(uint32_t n) const { return keys_full(n) + 8; }
  __device__ __forceinline__ uint32_t queries_full(uint32_t n) const {
    return base + kBarriersAt + kStages * 16 + n % 2 * 16;
  }
  __device__ __forceinline__ uint32_t queries_empty(uint32_t n) const {
    return queries_full(n) + 8;
  }
  // The parities that complete with the n-th tile and block.
  __device__ __forceinline__ static uint32_t tile_parity(uint32_t n) { return n / 2 % 2; }
  __device__ __forceinline__ static uint32_t block_parity(uint32_t n) { return n / kStages % 2; }

  // One thread.
  __device__ __forceinline__ void init() const {
    for (uint32_t n = 0; n < kStages; ++n) {
      init_mbarrier(keys_full(n), 1);
      init_mbarrier(keys_empty(n), 4);
    }
    for (uint32_t n = 0; n < 2; ++n) {
      init_mbarrier(queries_full(n), 2);
      init_mbarrier(queries_empty(n), 8);
    }
    fence_mbarrier_init();
  }
};

// ---- loading -----------------------------------------------------------------------------------

// The row of the tensor of keys where piece `piece` of a sequence begins, -1 if no query of the
// item sees it: its page may not exist.
__device__ __forceinline__ int find_key_row(const Problem& p, const Item& item, int piece) {
  const int position = piece * p.box_rows;
  if (position >= item.keys()) return -1;
  if (p.page_table == nullptr) return item.first_token + position;
  const int32_t page =
      p.page_table[item.sequence * p.page_table_stride + (position >> p.page_shift)];
  return (page << p.page_shift) + (position & ((1 << p.page_shift) - 1));
}

// One warp. A block comes in pieces of box_rows keys (a page, or all 64), and boxes of 64 elements;
// rows of 32 pieces are looked up at a time, a lane each.
template <class S>
__device__ __forceinline__ void load_keys(const Problem& p, const CUtensorMap* map,
                                          Shared<S> shared) {
  const int lane = threadIdx.x % 32, pieces = kBlock / p.box_rows;
  const int own_piece = lane % pieces, own_box = lane / pieces;
  Share<S::kQueries> share(p);
  uint32_t n = 0;
  for (Item item; share.take(item);) {
    const int first_piece = item.first_block * pieces;
    int rows = -1;
    for (int block = item.first_block; block < item.last_block; ++block, ++n) {
      const int piece = block * pieces - first_piece;
      if (piece % 32 == 0) rows = find_key_row(p, item, first_piece + piece + lane);
      const int row = __shfl_sync(0xffffffffu, rows, piece % 32 + own_piece);
      const uint32_t seen = __ballot_sync(0xffffffffu, row >= 0 && lane < pieces);
      wait(shared.keys_empty(n), shared.block_parity(n) ^ 1);
      if (lane == 0) {
        arrive_expect_bytes(shared.keys_full(n),
                            static_cast<uint32_t>(__popc(seen) * p.box_rows * 128 * S::kBoxes));
      }
      __syncwarp();
      if (row >= 0 && own_box < S::kBoxes) {
        load_box_hinted(
            shared.keys(n) + own_box * Shared<S>::kKeyBoxBytes + own_piece * p.box_rows * 128, map,
            shared.keys_full(n), own_box * kBoxColumns, row, kEvictNormal);
      }
    }
  }
}

// One warp: items with their queries and scaled weights, and an item without rows at the end.
template <class S>
__device__ __forceinline__ void load_queries(const Problem& p, const CUtensorMap* map,
                                             Shared<S> shared) {
  const int lane = threadIdx.x % 32;
  Share<S::kQueries> share(p);
  uint32_t n = 0;
  const auto put = [&](const Item& item) {
    __syncwarp();
    if (lane != 0) return;
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared.item(n)), "r"(item.rows),
                 "r"(item.row), "r"(item.position), "r"(item.first_block)
                 : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared.item(n) + 16), "r"(item.last_block)
                 : "memory");
    arrive(shared.queries_full(n));
  };
  Item item;
  while (share.take(item)) {
    if (item.first_block >= item.last_block) continue;
    wait(shared.queries_empty(n), shared.tile_parity(n) ^ 1);
    if (lane == 0) arrive_expect_bytes(shared.queries_full(n), Shared<S>::kQueryBytes);
    __syncwarp();
    if (lane < S::kBoxes) {
      load_box(shared.queries(n) + lane * Shared<S>::kQueryBoxBytes, map, shared.queries_full(n),
               lane * kBoxColumns, 0, item.row);
    }
#pragma unroll
    for (int column = lane; column < S::kColumns; column += 32) {
      const int query = column / S::kHeads, head = column % S::kHeads;
      float weight = 0.0f;
      if (query < item.rows && head < p.heads) {
        weight =
            __fmul_rn(p.scale, p.weights[static_cast<int64_t>(item.row + query) * p.heads + head]);
      }
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared.weights(n) + column * 4), "f"(weight)
                   : "memory");
    }
    put(item);
    ++n;
  }
  wait(shared.queries_empty(n), shared.tile_parity(n) ^ 1);
  if (lane == 0) arrive(shared.queries_full(n));
  item.rows = 0;
  put(item);
}

// ---- computing ---------------------------------------------------------------------------------

// max(0, x), a NaN if x is one.
__device__ __forceinline__ float rectify(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// A lane's share of the weighted sum of query `query`, of its two keys.
template <class S>
__device__ __forceinline__ void add_heads(float (&sums)[2],
                                          const float (&products)[S::kColumns / 2],
                                          uint32_t weights, int query) {
  sums[0] = sums[1] = 0.0f;
#pragma unroll
  for (int j = 0; j < S::kHeads / 8; ++j) {
    const int group = query * (S::kHeads / 8) + j;
    float low, high;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(low), "=f"(high)
                 : "r"(weights + group * 32)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] = __fmaf_rn(low, rectify(products[4 * group + 2 * i]), sums[i]);
      sums[i] = __fmaf_rn(high, rectify(products[4 * group + 2 * i + 1]), sums[i]);
    }
  }
}

__device__ __forceinline__ float add_from(float own, float sent, int distance) {
  return __fadd_rn(own, __shfl_xor_sync(0xffffffffu, sent, distance));
}

// Sums over the quad, (0 + 1) + (2 + 3). An odd lane keeps the second key; of two queries, the
// upper lanes keep the second one.
template <class S>
__device__ __forceinline__ void store_scores(const Problem& p, const Item& item,
                                             const float (&products)[S::kColumns / 2],
                                             uint32_t weights, int block) {
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x % 128) / 32;
  const bool odd = lane % 2 == 1, upper = lane % 4 >= 2;
  const int key = block * kBlock + warp * 16 + lane / 4 + (odd ? 8 : 0);
  float* out = p.scores + item.row * p.score_stride + key;
  weights += lane % 4 * 8;
  if constexpr (S::kQueries == 1) {
    float sums[2];
    add_heads<S>(sums, products, weights, 0);
    float sum = add_from(odd ? sums[1] : sums[0], odd ? sums[0] : sums[1], 1);
    sum = add_from(sum, sum, 2);
    if (!upper && key <= item.position) *out = sum;
  } else {
    if (upper) out += p.score_stride;
#pragma unroll
    for (int query = 0; query < S::kQueries; query += 2) {
      float sums[2][2], sum[2];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        add_heads<S>(sums[q], products, weights, query + q);
        sum[q] = add_from(odd ? sums[q][1] : sums[q][0], odd ? sums[q][0] : sums[q][1], 1);
      }
      const float score = add_from(upper ? sum[1] : sum[0], upper ? sum[0] : sum[1], 2);
      const int own = query + (upper ? 1 : 0);
      if (own < item.rows && key <= item.position + own) *out = score;
      out += 2 * p.score_stride;
    }
  }
}

// One warpgroup.
template <class S>
__device__ __forceinline__ void score_items(const Problem& p, Shared<S> shared, uint32_t group) {
  const int lane = threadIdx.x % 32;
  float products[S::kColumns / 2];
  uint32_t n = 0;
  for (uint32_t tile = 0;; ++tile) {
    wait(shared.queries_full(tile), shared.tile_parity(tile));
    Item item;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(item.rows), "=r"(item.row), "=r"(item.position), "=r"(item.first_block)
                 : "r"(shared.item(tile))
                 : "memory");
    asm volatile("ld.shared.b32 %0, [%1];"
                 : "=r"(item.last_block)
                 : "r"(shared.item(tile) + 16)
                 : "memory");
    if (item.rows == 0) return;
    const int count = item.last_block - item.first_block;
    // The warpgroups take the blocks of the launch's walk in turn.
    for (int i = static_cast<int>((n ^ group) % 2); i < count; i += 2) {
      const uint32_t at = n + i;
      wait(shared.keys_full(at), shared.block_parity(at));
      const Operand keys(shared.keys(at), 0), queries(shared.queries(tile), 0);
      wgmma_fence();
#pragma unroll
      for (int box = 0; box < S::kBoxes; ++box) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          wgmma_k16(products, keys.at(box * Shared<S>::kKeyBoxBytes + k * 32),
                    queries.at(box * Shared<S>::kQueryBoxBytes + k * 32), box > 0 || k > 0);
        }
      }
      wgmma_commit();
      wgmma_wait<0>();
      pin_registers(products);
      if (lane == 0) arrive(shared.keys_empty(at));
      store_scores<S>(p, item, products, shared.weights(tile), item.first_block + i);
    }
    n += count;
    __syncwarp();  // all lanes have read weights
    if (lane == 0) arrive(shared.queries_empty(tile));
  }
}

template <class S>
__global__ void __launch_bounds__(kScoreThreads, 1)
    score_keys(const __grid_constant__ Problem problem, const __grid_constant__ CUtensorMap queries,
               const __grid_constant__ CUtensorMap keys) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<S> shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&queries);
    prefetch_tensor_map(&keys);
    shared.init();
  }
  __syncthreads();
  enter_kernel();
  // The same in all lanes, and the compiler may know.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  if (warp == 0) {
    load_keys<S>(problem, &keys, shared);
  } else if (warp == 1) {
    load_queries<S>(problem, &queries, shared);
  } else if (warp >= 4) {
    score_items<S>(problem, shared, warp / 4 - 1);
  }
}

template <class S>
cudaError_t launch_scores(const Launch& launch, cudaStream_t stream) {
  return launch_early(score_keys<S>, {dim3(launch.grid), kScoreThreads, Shared<S>::kBytes}, stream,
                      launch.problem, launch.query_map, launch.key_map);
}

// Of one query a tile, or as many as fill it.
template <int kHeads>
cudaError_t launch_heads(const Launch& launch, cudaStream_t stream) {
  constexpr int kMany = kMostColumns / kHeads;
  if (launch.head_boxes == 1) {
    return launch.tile_queries == 1 ? launch_scores<Shape<kHeads, 1, 1>>(launch, stream)
                                    : launch_scores<Shape<kHeads, kMany, 1>>(launch, stream);
  }
  return launch.tile_queries == 1 ? launch_scores<Shape<kHeads, 1, 2>>(launch, stream)
                                  : launch_scores<Shape<kHeads, kMany, 2>>(launch, stream);
}

}  // namespace slimexx::kernels::sparse_index
