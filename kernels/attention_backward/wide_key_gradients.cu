// dK and dV of wide heads: a thread block owns 64 keys of one head and walks the queries at or
// after these keys. Products are transposed, as in key_gradients.cu: warpgroup 0 forms S^T = K Q^T,
// P^T and dV += P^T dO; warpgroup 1 forms dP^T = V dO^T, dS^T and dK += dS^T Q.
//
// Cost, 256 elements, per tile of 64 queries: 4 products of 2.1 MFLOP = 2048 tensor-core clocks at
// 4096 FLOP/clk/SM. Shared memory is as busy as in key_gradients.cu.
#include "kernels/attention_backward/wide.cuh"
#include "kernels/common/shared_pair.cuh"

namespace slimexx::kernels::attention_gradient {
namespace wide {
namespace {

// Shared address of a tile's negative_lse (0) or delta (1) at the thread's first columns.
__device__ __forceinline__ uint32_t statistics(uint32_t shared, uint32_t stage, uint32_t which) {
  return shared + Shared::kStatisticsAt + (stage * 2 + which) * kStatisticsBytes +
         threadIdx.x % 4 * 8;
}

// Turns S^T into P^T. On the diagonal, weights of keys after the query are 0. With lists, weights
// of keys that the query does not see are 0.
template <bool kListed>
__device__ __forceinline__ void weigh(float (&s)[32], uint32_t (&p)[16], uint32_t offsets, float c,
                                      bool diagonal, SeenColumns<kListed>& seen) {
  const int lane = threadIdx.x % 32;
  const int key = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 - 2 * (lane % 4);
  seen.align();
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 offset = read_pair(offsets + j * 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float low = exp2_approx(__fmaf_rn(s[4 * j + 2 * i], c, offset.x));
      float high = exp2_approx(__fmaf_rn(s[4 * j + 2 * i + 1], c, offset.y));
      if constexpr (kListed) {
        low = seen.has(i, j, 0) ? low : 0.0f;
        high = seen.has(i, j, 1) ? high : 0.0f;
      } else {
        if (diagonal && 8 * j < key + i * 8) low = 0.0f;
        if (diagonal && 8 * j + 1 < key + i * 8) high = 0.0f;
      }
      p[2 * j + i] = pack_bf16(low, high);
    }
  }
}

// Turns P^T into dS^T.
__device__ __forceinline__ void differentiate(uint32_t (&p)[16], const float (&dp)[32],
                                              uint32_t deltas) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 delta = read_pair(deltas + j * 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = 4 * j + 2 * i;
      p[2 * j + i] = pack_bf16(__fmul_rn(widen_low(p[2 * j + i]), __fsub_rn(dp[at], delta.x)),
                               __fmul_rn(widen_high(p[2 * j + i]), __fsub_rn(dp[at + 1], delta.y)));
    }
  }
}

// Warpgroup 0 forms dV, warpgroup 1 dK, over `count` query tiles. `own_first`: the first tile is on
// the diagonal.
template <int kGroup, bool kListed>
__device__ __forceinline__ void walk(const Problem& problem, uint32_t shared,
                                     TileReader<Shared>& tiles, Exchange& exchange,
                                     SeenColumns<kListed>& seen, float (&sum)[kDim / 2], int count,
                                     bool own_first = true) {
  float s[32];
  uint32_t p[16];
#pragma unroll
  for (float& value : sum) value = 0.0f;
  pin_registers(sum);
  const uint32_t rows = shared + kGroup * Shared::Ring::kTileBytes;  // keys, or values
  const auto issue_next = [&] {
    tiles.await_next();
    issue_scores(s, rows, kGroup == 0 ? tiles.next_first() : tiles.next_second());
    if (kGroup == 0) seen.read_next();
  };
  issue_next();
  tiles.begin();
  for (int tile = 0;; ++tile) {
    wgmma_wait<1>();  // waits for the previous tile's product; this tile's stays in flight
    tiles.release_previous();
    wgmma_wait<0>();
    pin_registers(s);
    pin_registers(sum);
    const bool last = tile + 1 == count;
    if (last) release(shared + Shared::kRowsEmptyAt);
    if constexpr (kGroup == 0) {
      weigh(s, p, statistics(shared, tiles.stage, 0), problem.c, tile == 0 && own_first, seen);
      exchange.write(p);
      issue_sum(sum, p, tiles.second());
    } else {
      exchange.read(p);
      differentiate(p, s, statistics(shared, tiles.stage, 1));
      issue_sum(sum, p, tiles.first());
    }
    if (last) break;
    issue_next();
    tiles.advance();
  }
  wgmma_wait<0>();
  pin_registers(sum);
  tiles.release_current();
}

template <int kGroup, bool kListed, bool kSpans>
__device__ __forceinline__ void compute_items(const Problem& problem, uint32_t shared) {
  TileReader<Shared> tiles{shared};
  Exchange exchange{shared};
  if (kGroup == 1) exchange.open();
  ItemQueue items{{shared + Shared::kItemsAt, {}}};
  float sum[kDim / 2];
  for (Item item; (item = items.wait()).block >= 0; items.drop()) {
    wait(shared + Shared::kRowsFullAt, items.item_parity());
    SeenColumns<kListed> seen;
    if (kGroup == 0) seen.begin_queries(problem, item);
    if constexpr (kSpans) {
      const WalkSpans spans = items.read_spans();
      if (spans.tiles > 0) {
        walk<kGroup>(problem, shared, tiles, exchange, seen, sum, spans.tiles, spans.first);
      } else {
#pragma unroll
        for (float& value : sum) value = 0.0f;
        release(shared + Shared::kRowsEmptyAt);
      }
    } else {
      walk<kGroup>(problem, shared, tiles, exchange, seen, sum,
                   divide_up(item.length, kTile) - item.block);
    }
    item = items.read();
    if constexpr (kGroup == 0) {
      store_rows(item, sum, problem.dv, problem.dv_stride, problem.value_dim, 1.0f);
    } else {
      store_rows(item, sum, problem.dk, problem.dk_stride, problem.head_dim, problem.scale);
    }
  }
}

template <bool kSpans>
__device__ __forceinline__ void load_items(const Problem& problem, const CUtensorMap& q_map,
                                           const CUtensorMap& k_map, const CUtensorMap& v_map,
                                           const CUtensorMap& dout_map, uint32_t shared) {
  TileLoader<kDim, kStages> loader{{shared + Shared::kRingAt, shared + Shared::kRingBarriersAt},
                                   {}};
  OwnRows own{shared};
  ItemQueue items{{shared + Shared::kItemsAt, {}}};
  Item item;
  int blocks = 0, piece = 0;
  for (int index = blockIdx.x;
       find_walk(problem, index, 2 * problem.query_heads, item, blocks, piece);) {
    item.head = piece / 2;
    item.block = 2 * (divide_up(item.length, kBlockRows) - blocks) + piece % 2;
    int next = 0;
    if (threadIdx.x == 0)
      next = static_cast<int>(gridDim.x + atomicAdd(&problem.counters->next_key_item, 1u));
    if (item.block * kTile < item.length) {
      TileSpans spans{0, 0, 0, 0};
      if constexpr (kSpans) {
        spans = find_spans(problem, item);
        items.put(item, pack_spans(spans, item.block));
      } else {
        items.put(item);
      }
      own.load(k_map, v_map, item);
      for (int query = item.block * kTile; query < item.length; query += kTile) {
        if constexpr (kSpans) {
          query = spans.next(query / kTile) * kTile;
          if (query >= spans.d * kTile) break;
        }
        const int64_t at = item.head * problem.padded_tokens + item.padded + query;
        const int row = item.first_token + query;
        loader.load(
            {q_map, dout_map, item.head, row, row}, item.length - query, 2 * kStatisticsBytes,
            [&](uint32_t stage, uint32_t barrier) {
              const uint32_t to = shared + Shared::kStatisticsAt + stage * 2 * kStatisticsBytes;
              load_bytes(to, problem.negative_lse + at, kStatisticsBytes, barrier);
              load_bytes(to + kStatisticsBytes, problem.delta + at, kStatisticsBytes, barrier);
            });
      }
    }
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  item.block = -1;
  items.put(item);
}

template <bool kListed, bool kSpans>
__global__ void __launch_bounds__(kThreads, 1)
    compute_wide_key_gradients(const __grid_constant__ Problem problem,
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
      compute_items<0, kListed, kSpans>(problem, shared);
    } else {
      compute_items<1, kListed, kSpans>(problem, shared);
    }
  }
}

}  // namespace
}  // namespace wide

cudaError_t launch_wide_key_gradients(const Launch& launch, int sm_count, cudaStream_t stream) {
  const Problem& p = launch.problem;
  const int64_t items = (p.tokens / kBlockRows + p.sequences) * p.query_heads * 2;
  const auto kernel = p.seeing_queries != nullptr ? wide::compute_wide_key_gradients<true, false>
                      : p.query_spans != nullptr  ? wide::compute_wide_key_gradients<false, true>
                                                  : wide::compute_wide_key_gradients<false, false>;
  return launch_kernel(kernel, wide::Shared::kBytes, items, sm_count, stream, p, launch.q_map,
                       launch.k_map, launch.v_map, launch.dout_map);
}

}  // namespace slimexx::kernels::attention_gradient
