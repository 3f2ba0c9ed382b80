// dK and dV: a thread block owns 128 keys of one kv head. It walks the queries at or after these
// keys, for one part of the group's query heads, in ascending order of (head, query).
//
// Products are transposed, S^T = K Q^T, so that P^T and dS^T stay in registers as the A operands of
// dV += P^T dO and dK += dS^T Q. A warpgroup owns 64 keys and shares only the loaded tiles with the
// other warpgroup. The next tile's S^T is issued before this tile's dS^T is formed, and the next
// dP^T before the next exponentials, so that the tensor cores work during both.
//
// Cost, head dim 128, per tile of 64 queries and 128 keys: 4 products of 2.1 MFLOP = 2048
// tensor-core clocks at 4096 FLOP/clk/SM; 8192 exponentials = 512 clocks at 16/clk/SM. Shared
// memory at 128 B/clk is as busy, 2048 clocks: 512 for each of the two score products (both
// operands in shared memory), 256 for each of the other two products, 256 for loads, 256 for reads
// of statistics. Registers are full: 128 results, 64 scores, 16 for the operand, 8 statistics.
//
// Roles: warpgroup 0 loads (one warp, load_items), warpgroups 1 and 2 compute (KeyWalk of
// key_walk.cuh). Barriers: the ring of query tiles, for each stage full (1 arrival, the loading
// warp) and empty (8, one for each computing warp); keys and values of the item, full (1) and empty
// (8); the queue of items, two deep, full (1) and empty (8).
#include "kernels/attention/problem.cuh"
#include "kernels/attention_backward/key_walk.cuh"
#include "kernels/attention_backward/launch.cuh"
#include "kernels/common/cluster.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {

using namespace attention;
using Problem = attention_gradient::Problem;
using Launch = attention_gradient::Launch;
using key_walk::KeyWalk;
using key_walk::kStages;
using key_walk::kStatisticsBytes;
using key_walk::Shared;

template <int kHeadDim>
__device__ __forceinline__ void store_rows(const Problem& problem, const Item& item, int first_row,
                                           const float (&x)[kHeadDim / 2], uint16_t* rounded,
                                           int64_t stride, float* partial, float scale) {
  const int lane = threadIdx.x % 32;
  const int kv_head = item.head / problem.group;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 + 8 * i;
    if (row >= item.length) continue;
    const int64_t token = item.first_token + row;
    const int column = lane % 4 * 2;
    if (partial != nullptr) {
      float* to = partial +
                  ((item.part * problem.tokens + token) * problem.kv_heads + kv_head) * kHeadDim +
                  column;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(__fmul_rn(x[4 * j + 2 * i], scale), __fmul_rn(x[4 * j + 2 * i + 1], scale));
      }
    } else {
      uint16_t* to = rounded + token * stride + kv_head * kHeadDim + column;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        *reinterpret_cast<uint32_t*>(to + 8 * j) =
            pack_bf16(__fmul_rn(x[4 * j + 2 * i], scale), __fmul_rn(x[4 * j + 2 * i + 1], scale));
      }
    }
  }
}

// Stores this warpgroup's rows of the item.
template <int kHeadDim>
__device__ __forceinline__ void store_sums(const Problem& problem, const Item& item,
                                           const KeyWalk<kHeadDim>& walk, uint32_t group) {
  const int first_row = item.block * kBlockRows + static_cast<int>(group) * kTile;
  store_rows<kHeadDim>(problem, item, first_row, walk.dk, problem.dk, problem.dk_stride,
                       problem.partial_dk, problem.scale);
  store_rows<kHeadDim>(problem, item, first_row, walk.dv, problem.dv, problem.dv_stride,
                       problem.partial_dv, 1.0f);
}

template <int kHeadDim, bool kSpans>
__device__ __forceinline__ void compute_items(const Problem& problem, uint32_t shared,
                                              uint32_t group) {
  using Layout = Shared<kHeadDim>;
  KeyWalk<kHeadDim> walk{problem, group, {shared}};
  ItemQueue items{{shared + Layout::kItemsAt, {}}};
  for (Item item; (item = items.wait()).block >= 0; items.drop()) {
    wait(shared + Layout::kKeysFullAt, items.item_parity());
    if constexpr (kSpans) {
      const WalkSpans spans = items.read_spans();
      const int own = spans.tiles - static_cast<int>(group != 0 && spans.first);
      if (own > 0) {
        walk.walk(item.heads, own, group == 0 ? spans.first : spans.second, spans.first);
      } else {
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) walk.dk[i] = walk.dv[i] = 0.0f;
        for (int tile = 0; tile < item.heads * spans.tiles; ++tile) walk.tiles.skip();
        release(shared + Layout::kKeysEmptyAt);
      }
      store_sums<kHeadDim>(problem, items.read(), walk, group);
      continue;
    }
    const int tiles =
        divide_up(item.length - item.block * kBlockRows, kTile) - static_cast<int>(group);
    if (tiles > 0) {
      walk.walk(item.heads, tiles);
      item = items.read();
      store_sums<kHeadDim>(problem, item, walk, group);
    } else {
      for (int head = 0; head < item.heads; ++head) walk.tiles.skip();
      release(shared + Layout::kKeysEmptyAt);
    }
  }
}

template <int kHeadDim, bool kSpans>
__device__ __forceinline__ void load_items(const Problem& problem, const CUtensorMap& q_map,
                                           const CUtensorMap& k_map, const CUtensorMap& v_map,
                                           const CUtensorMap& dout_map, uint32_t shared) {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  const int lane = threadIdx.x;
  TileLoader<kHeadDim, kStages> loader{{shared + Layout::kRingAt, shared + Layout::kRingBarriersAt},
                                       {}};
  ItemQueue items{{shared + Layout::kItemsAt, {}}};
  Item item;
  uint32_t keys_parity = 1;
  int blocks = 0, piece = 0;
  for (int index = blockIdx.x;
       find_walk(problem, index, problem.kv_heads * problem.parts, item, blocks, piece);) {
    item.block = divide_up(item.length, kBlockRows) - blocks;
    item.part = piece % problem.parts;
    item.head = piece / problem.parts * problem.group + item.part * problem.part_heads;
    item.heads = min(problem.part_heads, problem.group - item.part * problem.part_heads);
    TileSpans spans{0, 0, 0, 0};
    if constexpr (kSpans) {
      spans = find_spans(problem, item);
      items.put(item, pack_spans(spans, 2 * item.block));
    } else {
      items.put(item);
    }
    int next = 0;
    if (lane == 0)
      next = static_cast<int>(gridDim.x + atomicAdd(&problem.counters->next_key_item, 1u));

    const uint32_t keys_full = shared + Layout::kKeysFullAt;
    wait(shared + Layout::kKeysEmptyAt, keys_parity);
    keys_parity ^= 1;
    if (lane == 0) arrive_expect_bytes(keys_full, 4 * Ring::kTileBytes);
    __syncwarp();
    if (lane < 4 * Ring::kHalves) {
      const int half = lane % Ring::kHalves, rows = lane / Ring::kHalves % 2;
      load_box(shared + lane * kBoxBytes, lane < 2 * Ring::kHalves ? &k_map : &v_map, keys_full,
               half * kBoxColumns, item.head / problem.group,
               item.first_token + item.block * kBlockRows + rows * kTile);
    }
    for (int head = item.head; head < item.head + item.heads; ++head) {
      for (int query = item.block * kBlockRows; query < item.length; query += kTile) {
        if constexpr (kSpans) {
          query = spans.next(query / kTile) * kTile;
          if (query >= spans.d * kTile) break;
        }
        const int64_t at = head * problem.padded_tokens + item.padded + query;
        const int row = item.first_token + query;
        loader.load(
            {q_map, dout_map, head, row, row}, item.length - query, 2 * kStatisticsBytes,
            [&](uint32_t stage, uint32_t barrier) {
              const uint32_t to = shared + Layout::kStatisticsAt + stage * 2 * kStatisticsBytes;
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

template <int kHeadDim, bool kSpans>
__global__ void __launch_bounds__(kThreads, 1)
    compute_key_gradients(const __grid_constant__ Problem problem,
                          const __grid_constant__ CUtensorMap q_map,
                          const __grid_constant__ CUtensorMap k_map,
                          const __grid_constant__ CUtensorMap v_map,
                          const __grid_constant__ CUtensorMap dout_map) {
  using Layout = Shared<kHeadDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&q_map);
    prefetch_tensor_map(&k_map);
    prefetch_tensor_map(&v_map);
    prefetch_tensor_map(&dout_map);
    typename Layout::Ring{shared + Layout::kRingAt, shared + Layout::kRingBarriersAt}.init(
        kComputingWarps);
    init_mbarrier(shared + Layout::kKeysFullAt, 1);
    init_mbarrier(shared + Layout::kKeysEmptyAt, kComputingWarps * kArrivalsPerWarp);
    ItemQueue{{shared + Layout::kItemsAt, {}}}.init(kComputingWarps);
    fence_mbarrier_init();
  }
  __syncthreads();
  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<24>();
    if (threadIdx.x < 32) {
      load_items<kHeadDim, kSpans>(problem, q_map, k_map, v_map, dout_map, shared);
    }
  } else {
    grow_registers<240>();
    compute_items<kHeadDim, kSpans>(problem, shared, static_cast<uint32_t>(group));
  }
}

template <int kHeadDim>
cudaError_t launch(const Launch& launch, int sm_count, cudaStream_t stream) {
  const Problem& p = launch.problem;
  const int64_t items = (p.tokens / kBlockRows + p.sequences) * p.kv_heads * p.parts;
  const auto kernel = p.query_spans != nullptr ? compute_key_gradients<kHeadDim, true>
                                               : compute_key_gradients<kHeadDim, false>;
  return launch_kernel(kernel, Shared<kHeadDim>::kBytes, items, sm_count, stream, p, launch.q_map,
                       launch.k_map, launch.v_map, launch.dout_map);
}

}  // namespace

cudaError_t launch_key_gradients(const Launch& parameters, int sm_count, cudaStream_t stream) {
  return parameters.head_dim == 128 ? launch<128>(parameters, sm_count, stream)
                                    : launch<64>(parameters, sm_count, stream);
}

}  // namespace slimexx::kernels::attention_gradient
