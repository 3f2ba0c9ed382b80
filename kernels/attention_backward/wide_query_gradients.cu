// dQ of wide heads: a thread block owns 64 queries of one head and walks the keys up to these
// queries, in ascending order. Warpgroup 0 forms S = Q K^T and P; warpgroup 1 forms dP = dO V^T, dS
// and
// dQ += dS K.
//
// Cost, 256 elements, per tile of 64 keys: 3 products of 2.1 MFLOP = 1536 tensor-core clocks at
// 4096 FLOP/clk/SM. Warpgroup 1 has two of these products and so is busy nearly all the time.
#include "kernels/attention_backward/wide.cuh"

namespace slimexx::kernels::attention_gradient {
namespace wide {
namespace {

// Turns S into P. On the diagonal, weights of keys after the query are 0. With lists, weights of
// keys that the query does not see are 0.
template <bool kListed>
__device__ __forceinline__ void weigh(const float (&s)[32], uint32_t (&p)[16],
                                      const float (&offset)[2], float c, bool diagonal,
                                      SeenColumns<kListed>& seen) {
  const int lane = threadIdx.x % 32;
  const int query = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 - 2 * (lane % 4);
  seen.align();
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = 4 * j + 2 * i;
      float low = exp2_approx(__fmaf_rn(s[at], c, offset[i]));
      float high = exp2_approx(__fmaf_rn(s[at + 1], c, offset[i]));
      if constexpr (kListed) {
        low = seen.has(i, j, 0) ? low : 0.0f;
        high = seen.has(i, j, 1) ? high : 0.0f;
      } else {
        if (diagonal && 8 * j > query + i * 8) low = 0.0f;
        if (diagonal && 8 * j + 1 > query + i * 8) high = 0.0f;
      }
      p[2 * j + i] = pack_bf16(low, high);
    }
  }
}

// Turns P into dS.
__device__ __forceinline__ void differentiate(uint32_t (&p)[16], const float (&dp)[32],
                                              const float (&delta)[2]) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float d = delta[j % 2];
    p[j] = pack_bf16(__fmul_rn(widen_low(p[j]), __fsub_rn(dp[2 * j], d)),
                     __fmul_rn(widen_high(p[j]), __fsub_rn(dp[2 * j + 1], d)));
  }
}

// Reads negative_lse (warpgroup 0) or delta (warpgroup 1) of the thread's rows.
template <int kGroup>
__device__ __forceinline__ void read_statistics(const Problem& problem, const Item& item,
                                                float (&x)[2]) {
  const float* from = kGroup == 0 ? problem.negative_lse : problem.delta;
  from += item.head * problem.padded_tokens + item.padded + item.block * kTile + row_of_thread();
  x[0] = from[0];
  x[1] = from[8];
}

__device__ __forceinline__ void await_scores(float (&s)[32]) {
  wgmma_wait<0>();
  pin_registers(s);
}

// Warpgroup 0: forms the weights of `count` key tiles; the last tile is on the diagonal.
template <bool kListed>
__device__ __forceinline__ void walk_weights(const Problem& problem, uint32_t shared,
                                             TileReader<Shared>& tiles, Exchange& exchange,
                                             const float (&offset)[2], SeenColumns<kListed>& seen,
                                             int count) {
  float s[32];
  uint32_t p[16];
  for (int tile = 0; tile < count; ++tile) {
    tiles.await_next();
    issue_scores(s, shared, tiles.next_first());
    seen.read_next();
    await_scores(s);
    tiles.drop_next();
    const bool last = tile + 1 == count;
    if (last) release(shared + Shared::kRowsEmptyAt);
    weigh(s, p, offset, problem.c, last, seen);
    exchange.write(p);
  }
}

__device__ __forceinline__ void walk_gradients(uint32_t shared, TileReader<Shared>& tiles,
                                               Exchange& exchange, const float (&delta)[2],
                                               float (&dq)[kDim / 2], int count) {
  float dp[32];
  uint32_t p[16];
#pragma unroll
  for (float& value : dq) value = 0.0f;
  pin_registers(dq);
  const uint32_t rows = shared + Shared::Ring::kTileBytes;
  tiles.await_next();
  issue_scores(dp, rows, tiles.next_second());
  tiles.begin();
  for (int tile = 0;; ++tile) {
    wgmma_wait<1>();  // waits for the previous tile's product; this tile's stays in flight
    tiles.release_previous();
    wgmma_wait<0>();
    pin_registers(dp);
    pin_registers(dq);
    const bool last = tile + 1 == count;
    if (last) release(shared + Shared::kRowsEmptyAt);
    exchange.read(p);
    differentiate(p, dp, delta);
    issue_sum(dq, p, tiles.first());
    if (last) break;
    tiles.await_next();
    issue_scores(dp, rows, tiles.next_second());
    tiles.advance();
  }
  wgmma_wait<0>();
  pin_registers(dq);
  tiles.release_current();
}

template <int kGroup, bool kListed>
__device__ __forceinline__ void compute_items(const Problem& problem, uint32_t shared) {
  TileReader<Shared> tiles{shared};
  Exchange exchange{shared};
  if (kGroup == 1) exchange.open();
  ItemQueue items{{shared + Shared::kItemsAt, {}}};
  float dq[kDim / 2];
  for (Item item; (item = items.wait()).block >= 0; items.drop()) {
    float statistic[2];
    read_statistics<kGroup>(problem, item, statistic);
    wait(shared + Shared::kRowsFullAt, items.item_parity());
    if constexpr (kGroup == 0) {
      SeenColumns<kListed> seen;
      seen.begin_keys(problem, item);
      walk_weights(problem, shared, tiles, exchange, statistic, seen, item.block + 1);
    } else {
      walk_gradients(shared, tiles, exchange, statistic, dq, item.block + 1);
      store_rows(items.read(), dq, problem.dq, problem.dq_stride, problem.head_dim, problem.scale);
    }
  }
}

template <bool kSpans>
__device__ __forceinline__ void load_items(const Problem& problem, const CUtensorMap& q_map,
                                           const CUtensorMap& k_map, const CUtensorMap& v_map,
                                           const CUtensorMap& dout_map, uint32_t shared) {
  const auto kNothing = [](uint32_t, uint32_t) {};
  TileLoader<kDim, kStages> loader{{shared + Shared::kRingAt, shared + Shared::kRingBarriersAt},
                                   {}};
  OwnRows own{shared};
  ItemQueue items{{shared + Shared::kItemsAt, {}}};
  Item item;
  int blocks = 0, piece = 0;
  for (int index = blockIdx.x;
       find_walk(problem, index, 2 * problem.query_heads, item, blocks, piece);) {
    item.head = piece / 2;
    item.block = 2 * (blocks - 1) + 1 - piece % 2;
    int next = 0;
    if (threadIdx.x == 0)
      next = static_cast<int>(gridDim.x + atomicAdd(&problem.counters->next_query_item, 1u));
    bool is_walked = item.block * kTile < item.length;
    if constexpr (kSpans) is_walked = is_walked && find_spans(problem, item).has(item.block);
    if (is_walked) {
      items.put(item);
      own.load(q_map, dout_map, item);
      for (int key = 0; key <= item.block * kTile; key += kTile) {
        const int row = item.first_token + key;
        loader.load({k_map, v_map, item.head, row, row}, item.length - key, 0, kNothing);
      }
    }
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  item.block = -1;
  items.put(item);
}

template <bool kListed, bool kSpans>
__global__ void __launch_bounds__(kThreads, 1)
    compute_wide_query_gradients(const __grid_constant__ Problem problem,
                                 const __grid_constant__ CUtensorMap q_map,
                                 const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map,
                                 const __grid_constant__ CUtensorMap dout_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&q_map);
    prefetch_tensor_map(&k_map);
    prefetch_tensor_map(&v_map);
    prefetch_tensor_map(&dout_map);
    init_barriers(shared);
  }
  __syncthreads();
  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<24>();
    if (threadIdx.x < 32) load_items<kSpans>(problem, q_map, k_map, v_map, dout_map, shared);
  } else {
    grow_registers<240>();
    if (group == 0) {
      compute_items<0, kListed>(problem, shared);
    } else {
      compute_items<1, kListed>(problem, shared);
    }
  }
}

}  // namespace
}  // namespace wide

cudaError_t launch_wide_query_gradients(const Launch& launch, int sm_count, cudaStream_t stream) {
  const Problem& p = launch.problem;
  const int64_t items = (p.tokens / kBlockRows + p.sequences) * p.query_heads * 2;
  const auto kernel = p.seen_keys != nullptr     ? wide::compute_wide_query_gradients<true, false>
                      : p.query_spans != nullptr ? wide::compute_wide_query_gradients<false, true>
                                                 : wide::compute_wide_query_gradients<false, false>;
  return launch_kernel(kernel, wide::Shared::kBytes, items, sm_count, stream, p, launch.q_map,
                       launch.k_map, launch.v_map, launch.dout_map);
}

}  // namespace slimexx::kernels::attention_gradient
