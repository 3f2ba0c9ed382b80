// dK and dV: a thread block owns 128 keys of one kv head and walks all queries after them, of one
// part of the head's query heads, in ascending order of (head, query).
//
// Everything is transposed, S^T = K Q^T, so that P^T and dS^T stay in registers and are the first
// operand of dV += P^T dO and dK += dS^T Q: a warpgroup owns 64 keys and shares nothing with the
// other but the loaded tiles. The next tile's S^T is issued before this tile's dK, the next dP^T
// after it, so that the tensor cores work under the exponentials.
//
// Cost, head dim 128, per tile of 64 queries and 128 keys: 4 products of 2.1 MFLOP = 2048
// tensor-core clocks at 4096 FLOP/clk/SM; 8192 exponentials = 512 clocks at 16/clk/SM; shared
// memory 64 KB for each product of scores, 32 KB for each of the others, 32 KB loaded = 1792 clocks
// at 128 B/clk.
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/attention_backward/items.cuh"
#include "kernels/attention_backward/products.cuh"
#include "kernels/attention_backward/tile_ring.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {

using namespace attention;
using Problem = attention_gradient::Problem;
using Launch = attention_gradient::Launch;

constexpr int kThreads = 384;
constexpr int kStages = 4;
constexpr uint32_t kStatisticsBytes = kTile * 4;

template <int kHeadDim>
struct Shared {
  using Ring = TileRing<kHeadDim, kStages>;
  // Keys, then values: per warpgroup 64 rows.
  static constexpr uint32_t kValuesAt = 2 * Ring::kTileBytes;
  static constexpr uint32_t kRingAt = 2 * kValuesAt;
  // Per stage: negative_lse, delta.
  static constexpr uint32_t kStatisticsAt = kRingAt + Ring::kBytes;
  static constexpr uint32_t kRingBarriersAt = kStatisticsAt + kStages * 2 * kStatisticsBytes;
  static constexpr uint32_t kKeysFullAt = kRingBarriersAt + Ring::kBarrierBytes;
  static constexpr uint32_t kKeysEmptyAt = kKeysFullAt + 8;
  static constexpr uint32_t kItemsAt = (kKeysEmptyAt + 8 + 15) / 16 * 16;
  static constexpr uint32_t kBytes = kItemsAt + ItemQueue::kBytes;
};

__device__ __forceinline__ float2 read_pair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
  return x;
}

// One warpgroup: 64 keys against one part's queries.
template <int kHeadDim>
struct KeyWalk {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  static constexpr int kOutputs = kHeadDim / 2;
  static constexpr uint32_t kNone = kStages;
  const Problem& problem;
  uint32_t shared;
  uint32_t group;
  RingCursor<kStages> ahead;     // the tile whose scores are issued next
  uint32_t stage, stage_before;  // of the current tile and the one before
  float dk[kOutputs], dv[kOutputs];
  float s[32], dp[32];
  uint32_t operand[16];  // P, then dS in its place: 16 registers more would not fit

  __device__ __forceinline__ Ring ring() const {
    return {shared + Layout::kRingAt, shared + Layout::kRingBarriersAt};
  }

  // All lanes have read what the barrier gives back.
  __device__ __forceinline__ void release(uint32_t barrier) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
  }

  __device__ __forceinline__ void issue_scores(float (&d)[32], uint32_t rows_at,
                                               uint32_t tile) const {
    const Operand rows(shared + rows_at + group * Ring::kTileBytes, 0), columns(tile, 0);
    fence_products();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint32_t at = k / 4 * kBoxBytes + k % 4 * 32;
      multiply_rows(d, rows.at(at), columns.at(at), k > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void issue_sums(float (&d)[kOutputs], uint32_t tile) const {
    const Operand b(tile, kBoxBytes);
    fence_products();
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) multiply_registers(d, operand + 4 * k, b.at(k * 16 * 128));
    commit_products();
  }

  // A tile before this warpgroup's keys.
  __device__ __forceinline__ void skip() {
    wait_barrier(ring().full(ahead.stage), ahead.parity);
    release(ring().empty(ahead.stage));
    ahead.advance();
  }

  __device__ __forceinline__ void weigh(bool diagonal) {
    const int lane = threadIdx.x % 32;
    const uint32_t offsets =
        shared + Layout::kStatisticsAt + stage * 2 * kStatisticsBytes + lane % 4 * 8;
    const int key = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 - 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 offset = read_pair(offsets + j * 32);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * i;
        s[at] = exp2_approx(__fmaf_rn(s[at], problem.c, offset.x));
        s[at + 1] = exp2_approx(__fmaf_rn(s[at + 1], problem.c, offset.y));
      }
    }
    if (diagonal) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * j + i % 2 < key + i / 2 * 8) s[4 * j + i] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void round_weights() {
#pragma unroll
    for (int i = 0; i < 16; ++i) operand[i] = round_pair(s[2 * i], s[2 * i + 1]);
  }

  __device__ __forceinline__ void differentiate() {
    const uint32_t deltas = shared + Layout::kStatisticsAt + stage * 2 * kStatisticsBytes +
                            kStatisticsBytes + threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 delta = read_pair(deltas + j * 32);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * i;
        const float low = __uint_as_float(operand[at / 2] << 16);
        const float high = __uint_as_float(operand[at / 2] & 0xffff0000u);
        operand[at / 2] = round_pair(__fmul_rn(low, __fsub_rn(dp[at], delta.x)),
                                     __fmul_rn(high, __fsub_rn(dp[at + 1], delta.y)));
      }
    }
  }

  // The current tile's scores are there; in flight on entry: dK of the tile before, dP.
  __device__ __forceinline__ void step(bool diagonal, bool skip_before_next) {
    weigh(diagonal);
    wait_products<0>();
    pin_registers(dp);
    if (stage_before != kNone) release(ring().empty(stage_before));
    if (skip_before_next) skip();
    round_weights();
    issue_sums(dv, ring().second(stage));
    wait_barrier(ring().full(ahead.stage), ahead.parity);
    issue_scores(s, 0, ring().first(ahead.stage));
    wait_products<1>();
    differentiate();
    issue_sums(dk, ring().first(stage));
    issue_scores(dp, Layout::kValuesAt, ring().second(ahead.stage));
    stage_before = stage;
    stage = ahead.stage;
    ahead.advance();
    wait_products<2>();
    pin_registers(s);
  }

  __device__ __forceinline__ void last_step(bool diagonal) {
    weigh(diagonal);
    wait_products<0>();
    pin_registers(dp);
    release(shared + Layout::kKeysEmptyAt);
    if (stage_before != kNone) release(ring().empty(stage_before));
    round_weights();
    issue_sums(dv, ring().second(stage));
    wait_products<0>();
    differentiate();
    issue_sums(dk, ring().first(stage));
    wait_products<0>();
    pin_registers(dk);
    pin_registers(dv);
    release(ring().empty(stage));
  }

  // `tiles` of each head are not before this warpgroup's keys; the second warpgroup skips one.
  __device__ __forceinline__ void walk(int heads, int tiles) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) dk[i] = dv[i] = 0.0f;
    pin_registers(dk);
    pin_registers(dv);
    if (group != 0) skip();
    wait_barrier(ring().full(ahead.stage), ahead.parity);
    issue_scores(s, 0, ring().first(ahead.stage));
    issue_scores(dp, Layout::kValuesAt, ring().second(ahead.stage));
    stage_before = kNone;
    stage = ahead.stage;
    ahead.advance();
    wait_products<1>();
    pin_registers(s);
    int left = tiles;  // of this head
    for (;;) {
      const bool diagonal = left == tiles;
      if (--left == 0) {
        if (--heads == 0) {
          last_step(diagonal);
          break;
        }
        left = tiles;
      }
      step(diagonal, left == tiles && group != 0);
    }
  }
};

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
            round_pair(__fmul_rn(x[4 * j + 2 * i], scale), __fmul_rn(x[4 * j + 2 * i + 1], scale));
      }
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void compute_items(const Problem& problem, uint32_t shared,
                                              uint32_t group) {
  using Layout = Shared<kHeadDim>;
  KeyWalk<kHeadDim> walk{problem, shared, group};
  ItemQueue items{shared + Layout::kItemsAt, {}};
  for (Item item; (item = items.wait()).block >= 0; items.drop()) {
    wait_barrier(shared + Layout::kKeysFullAt, items.item_parity());
    const int tiles =
        divide_up(item.length - item.block * kBlockRows, kTile) - static_cast<int>(group);
    if (tiles > 0) {
      walk.walk(item.heads, tiles);
      item = items.read();
      const int first_row = item.block * kBlockRows + static_cast<int>(group) * kTile;
      store_rows<kHeadDim>(problem, item, first_row, walk.dk, problem.dk, problem.dk_stride,
                           problem.partial_dk, problem.scale);
      store_rows<kHeadDim>(problem, item, first_row, walk.dv, problem.dv, problem.dv_stride,
                           problem.partial_dv, 1.0f);
    } else {
      for (int head = 0; head < item.heads; ++head) walk.skip();
      walk.release(shared + Layout::kKeysEmptyAt);
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void load_items(const Problem& problem, const CUtensorMap& q_map,
                                           const CUtensorMap& k_map, const CUtensorMap& v_map,
                                           const CUtensorMap& dout_map, uint32_t shared) {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  const int lane = threadIdx.x;
  TileLoader<kHeadDim, kStages> loader{
      q_map, dout_map, {shared + Layout::kRingAt, shared + Layout::kRingBarriersAt}, {}};
  ItemQueue items{shared + Layout::kItemsAt, {}};
  WorkCursor cursor;
  Item item;
  uint32_t keys_parity = 1;
  int piece = 0;
  for (int index = blockIdx.x;
       find_item(problem, cursor, index, problem.kv_heads * problem.parts, true, item, piece);) {
    item.part = piece % problem.parts;
    item.head = piece / problem.parts * problem.group + item.part * problem.part_heads;
    item.heads = min(problem.part_heads, problem.group - item.part * problem.part_heads);
    items.put(item);
    int next = 0;
    if (lane == 0) next = static_cast<int>(gridDim.x + atomicAdd(problem.next_item, 1u));

    const uint32_t keys_full = shared + Layout::kKeysFullAt;
    wait_barrier(shared + Layout::kKeysEmptyAt, keys_parity);
    keys_parity ^= 1;
    if (lane == 0) arrive_expecting(keys_full, 4 * Ring::kTileBytes);
    __syncwarp();
    if (lane < 4 * Ring::kHalves) {
      const int half = lane % Ring::kHalves, rows = lane / Ring::kHalves % 2;
      load_box(lane < 2 * Ring::kHalves ? k_map : v_map, shared + lane * kBoxBytes, keys_full,
               half * kBoxColumns, item.head / problem.group,
               item.first_token + item.block * kBlockRows + rows * kTile);
    }
    for (int head = item.head; head < item.head + item.heads; ++head) {
      for (int query = item.block * kBlockRows; query < item.length; query += kTile) {
        const int64_t at = head * problem.padded_tokens + item.padded + query;
        loader.load(
            head, item.first_token + query, item.length - query, 2 * kStatisticsBytes,
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

template <int kHeadDim>
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
    prefetch_map(q_map);
    prefetch_map(k_map);
    prefetch_map(v_map);
    prefetch_map(dout_map);
    typename Layout::Ring{shared + Layout::kRingAt, shared + Layout::kRingBarriersAt}.init(8);
    init_barrier(shared + Layout::kKeysFullAt, 1);
    init_barrier(shared + Layout::kKeysEmptyAt, 8);
    ItemQueue{shared + Layout::kItemsAt, {}}.init(8);
    publish_barriers();
  }
  __syncthreads();
  // The same in all lanes, and the compiler may know.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x < 32) {
      load_items<kHeadDim>(problem, q_map, k_map, v_map, dout_map, shared);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    compute_items<kHeadDim>(problem, shared, static_cast<uint32_t>(group));
  }
}

template <int kHeadDim>
cudaError_t launch(const Launch& launch, int processors, cudaStream_t stream) {
  auto* kernel = compute_key_gradients<kHeadDim>;
  constexpr int kBytes = Shared<kHeadDim>::kBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const Problem& p = launch.problem;
  const int64_t items = (p.tokens / kBlockRows + p.sequences) * p.kv_heads * p.parts;
  kernel<<<static_cast<unsigned>(items < processors ? items : processors), kThreads, kBytes,
           stream>>>(p, launch.q_map, launch.k_map, launch.v_map, launch.dout_map);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_key_gradients(const Launch& parameters, int processors, cudaStream_t stream) {
  return parameters.head_dim == 128 ? launch<128>(parameters, processors, stream)
                                    : launch<64>(parameters, processors, stream);
}

}  // namespace slimexx::kernels::attention_gradient
