// dQ: a thread block owns 128 queries of one head and walks the keys up to them, in ascending
// order.
//
// A warpgroup owns 64 queries: their rows of Q and dO stay in registers as the first operand of
// S = Q K^T and dP = dO V^T, and dS is the first operand of dQ += dS K. The next tile's S is issued
// before this tile's dQ, the next dP after it.
//
// Cost, head dim 128, per tile of 64 keys and 128 queries: 3 products of 2.1 MFLOP = 1536
// tensor-core clocks at 4096 FLOP/clk/SM; 8192 exponentials = 512 clocks at 16/clk/SM; shared
// memory 32 KB for each product, 32 KB loaded = 1024 clocks at 128 B/clk.
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

template <int kHeadDim>
struct Shared {
  using Ring = TileRing<kHeadDim, kStages>;
  // Per warpgroup: queries, output gradients, and the result on its way out.
  static constexpr uint32_t kGroupBytes = 3 * Ring::kTileBytes;
  static constexpr uint32_t kRingAt = 2 * kGroupBytes;
  static constexpr uint32_t kRingBarriersAt = kRingAt + Ring::kBytes;
  // Per warpgroup: rows full, rows empty.
  static constexpr uint32_t kRowsFullAt = kRingBarriersAt + Ring::kBarrierBytes;
  static constexpr uint32_t kItemsAt = (kRowsFullAt + 32 + 15) / 16 * 16;
  static constexpr uint32_t kBytes = kItemsAt + ItemQueue::kBytes;
};

// One warpgroup: 64 queries against the keys up to them.
template <int kHeadDim>
struct QueryWalk {
  using Ring = typename Shared<kHeadDim>::Ring;
  static constexpr uint32_t kNone = kStages;
  const Problem& problem;
  uint32_t shared;
  RingCursor<kStages> ahead;     // the tile whose scores are issued next
  uint32_t stage, stage_before;  // of the current tile and the one before
  uint32_t q[kHeadDim / 4], dout[kHeadDim / 4];
  float negative_lse[2], delta[2];
  float dq[kHeadDim / 2];
  float s[32], dp[32];
  uint32_t ds[16];

  __device__ __forceinline__ Ring ring() const {
    return {shared + Shared<kHeadDim>::kRingAt, shared + Shared<kHeadDim>::kRingBarriersAt};
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (threadIdx.x % 32 == 0) arrive(barrier);
  }

  // The thread's share of 64 rows as operands.
  __device__ __forceinline__ void read_operand(uint32_t (&rows)[kHeadDim / 4],
                                               uint32_t buffer) const {
    const int lane = threadIdx.x % 32;
    const int row = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int chunk = (k % 4 * 2 + lane / 16) ^ (row % 8);
      const uint32_t from = buffer + k / 4 * kBoxBytes + row * 128 + chunk * 16;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(rows[4 * k]), "=r"(rows[4 * k + 1]), "=r"(rows[4 * k + 2]),
                     "=r"(rows[4 * k + 3])
                   : "r"(from)
                   : "memory");
    }
  }

  __device__ __forceinline__ void issue_scores(float (&d)[32], const uint32_t (&rows)[kHeadDim / 4],
                                               uint32_t tile) const {
    const Operand columns(tile, 0);
    fence_products();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      multiply_rows(d, rows + 4 * k, columns.at(k / 4 * kBoxBytes + k % 4 * 32), k > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void issue_sum(uint32_t tile) {
    const Operand keys(tile, kBoxBytes);
    fence_products();
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) multiply_registers(dq, ds + 4 * k, keys.at(k * 16 * 128));
    commit_products();
  }

  __device__ __forceinline__ void weigh(bool diagonal) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      s[i] = exp2_approx(__fmaf_rn(s[i], problem.c, negative_lse[i / 2 % 2]));
    }
    if (diagonal) {
      const int lane = threadIdx.x % 32;
      const int query = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 - 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * j + i % 2 > query + i / 2 * 8) s[4 * j + i] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void differentiate() {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float d = delta[i % 2];
      ds[i] = round_pair(__fmul_rn(s[2 * i], __fsub_rn(dp[2 * i], d)),
                         __fmul_rn(s[2 * i + 1], __fsub_rn(dp[2 * i + 1], d)));
    }
  }

  // The current tile's scores are weighed; in flight on entry: dQ of the tile before, dP.
  __device__ __forceinline__ void step(bool next_diagonal) {
    wait_products<0>();
    pin_registers(dp);
    if (stage_before != kNone) release(ring().empty(stage_before));
    differentiate();
    wait_barrier(ring().full(ahead.stage), ahead.parity);
    issue_scores(s, q, ring().first(ahead.stage));
    issue_sum(ring().first(stage));
    issue_scores(dp, dout, ring().second(ahead.stage));
    stage_before = stage;
    stage = ahead.stage;
    ahead.advance();
    wait_products<2>();
    pin_registers(s);
    weigh(next_diagonal);
  }

  // `tiles` > 0, the last of them on the diagonal.
  __device__ __forceinline__ void walk(int tiles) {
#pragma unroll
    for (float& value : dq) value = 0.0f;
    pin_registers(dq);
    wait_barrier(ring().full(ahead.stage), ahead.parity);
    issue_scores(s, q, ring().first(ahead.stage));
    issue_scores(dp, dout, ring().second(ahead.stage));
    stage_before = kNone;
    stage = ahead.stage;
    ahead.advance();
    wait_products<1>();
    pin_registers(s);
    weigh(tiles == 1);
    for (int tile = 1; tile < tiles; ++tile) step(tile + 1 == tiles);
    wait_products<0>();
    pin_registers(dp);
    if (stage_before != kNone) release(ring().empty(stage_before));
    differentiate();
    issue_sum(ring().first(stage));
    wait_products<0>();
    pin_registers(dq);
    release(ring().empty(stage));
  }

  __device__ __forceinline__ void skip() {
    wait_barrier(ring().full(ahead.stage), ahead.parity);
    release(ring().empty(ahead.stage));
    ahead.advance();
  }
};

// Rounded rows go through shared memory and leave 16 bytes per thread.
template <int kHeadDim>
__device__ __forceinline__ void store_rows(const Problem& problem, const Item& item, int group,
                                           const float (&dq)[kHeadDim / 2], uint32_t staging,
                                           uint32_t barrier_id) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
  const int first_row = item.block * kBlockRows + group * kTile;
  sync_named(barrier_id, 128);  // the last item's rows are read
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const uint32_t pair = round_pair(__fmul_rn(dq[4 * j + 2 * i], problem.scale),
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

// Tiles of keys that a block of queries meets.
__device__ __forceinline__ int tiles_of(const Item& item) {
  return min(2 * item.block + 2, divide_up(item.length, kTile));
}

template <int kHeadDim>
__device__ __forceinline__ void compute_items(const Problem& problem, uint32_t shared, int group) {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  QueryWalk<kHeadDim> walk{problem, shared};
  const uint32_t rows = shared + group * Layout::kGroupBytes;
  const uint32_t rows_full = shared + Layout::kRowsFullAt + group * 16;
  const int row = static_cast<int>(threadIdx.x % 128) / 32 * 16 + threadIdx.x % 32 / 4;
  ItemQueue items{shared + Layout::kItemsAt, {}};
  for (Item item; (item = items.wait()).block >= 0; items.drop()) {
    const int first_row = item.block * kBlockRows + group * kTile;
    const int64_t at = item.head * problem.padded_tokens + item.padded + first_row + row;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      walk.negative_lse[i] = problem.negative_lse[at + 8 * i];
      walk.delta[i] = problem.delta[at + 8 * i];
    }
    wait_barrier(rows_full, items.item_parity());
    walk.read_operand(walk.q, rows);
    walk.read_operand(walk.dout, rows + Ring::kTileBytes);
    __syncwarp();
    walk.release(rows_full + 8);
    const int tiles = first_row < item.length ? first_row / kTile + 1 : 0;
    if (tiles > 0) {
      walk.walk(tiles);
      store_rows<kHeadDim>(problem, items.read(), group, walk.dq, rows + 2 * Ring::kTileBytes,
                           static_cast<uint32_t>(1 + group));
    }
    const int skipped = tiles_of(items.read()) - tiles;
    for (int tile = 0; tile < skipped; ++tile) walk.skip();
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
      k_map, v_map, {shared + Layout::kRingAt, shared + Layout::kRingBarriersAt}, {}};
  ItemQueue items{shared + Layout::kItemsAt, {}};
  WorkCursor cursor;
  Item item;
  uint32_t rows_parity = 1;
  for (int index = blockIdx.x;
       find_item(problem, cursor, index, problem.query_heads, false, item, item.head);) {
    items.put(item);
    int next = 0;
    if (lane == 0) next = static_cast<int>(gridDim.x + atomicAdd(problem.next_item + 1, 1u));
    for (int group = 0; group < 2; ++group) {
      const uint32_t full = shared + Layout::kRowsFullAt + group * 16;
      wait_barrier(full + 8, rows_parity);
      if (lane == 0) arrive_expecting(full, 2 * Ring::kTileBytes);
      __syncwarp();
      if (lane < 2 * Ring::kHalves) {
        load_box(lane < Ring::kHalves ? q_map : dout_map,
                 shared + group * Layout::kGroupBytes + lane * kBoxBytes, full,
                 lane % Ring::kHalves * kBoxColumns, item.head,
                 item.first_token + item.block * kBlockRows + group * kTile);
      }
    }
    rows_parity ^= 1;
    const int tiles = tiles_of(item);
    for (int tile = 0; tile < tiles; ++tile) {
      loader.load(item.head / problem.group, item.first_token + tile * kTile,
                  item.length - tile * kTile, 0, [](uint32_t, uint32_t) {});
    }
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  item.block = -1;
  items.put(item);
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    compute_query_gradients(const __grid_constant__ Problem problem,
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
    for (uint32_t group = 0; group < 2; ++group) {
      init_barrier(shared + Layout::kRowsFullAt + group * 16, 1);
      init_barrier(shared + Layout::kRowsFullAt + group * 16 + 8, 4);
    }
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
    compute_items<kHeadDim>(problem, shared, group);
  }
}

template <int kHeadDim>
cudaError_t launch(const Launch& launch, int processors, cudaStream_t stream) {
  auto* kernel = compute_query_gradients<kHeadDim>;
  constexpr int kBytes = Shared<kHeadDim>::kBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const Problem& p = launch.problem;
  const int64_t items = (p.tokens / kBlockRows + p.sequences) * p.query_heads;
  kernel<<<static_cast<unsigned>(items < processors ? items : processors), kThreads, kBytes,
           stream>>>(p, launch.q_map, launch.k_map, launch.v_map, launch.dout_map);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_query_gradients(const Launch& parameters, int processors, cudaStream_t stream) {
  return parameters.head_dim == 128 ? launch<128>(parameters, processors, stream)
                                    : launch<64>(parameters, processors, stream);
}

}  // namespace slimexx::kernels::attention_gradient
