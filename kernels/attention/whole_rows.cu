// Whole rows: a tile is 128 consecutive queries of one head, and one thread block walks all their
// keys; for training, prefill and long chunks.
//
// Persistent thread blocks take tiles from a counter in ascending order; the loading warp runs
// ahead into the next tile. A tile's bits do not depend on the block that computes it.
//
// Roles: warpgroup 0 loads (one warp; FP8: its other warps dequantise); warpgroups 1 and 2 compute
// 64 rows each, so that the softmax of one overlaps the products of the other. Ping-pong ordering
// by barriers made it slower, by up to 5 % with head dim 128 and 10 % with 64 (H200 at its power
// limit).
//
// How to read: TileOrder is the scheduler, load_tiles the producer with KeyLoader of
// key_stream.cuh, compute_tiles the consumer with KeyWalk of key_walk.cuh. Barriers: keys and
// values, for each stage full (1 arrival, the loading warp; FP8: 3, lane 0 of each converting warp)
// and empty (8, lane 0 of each computing warp), FP8: loaded (1); queries, for each warpgroup full
// (1) and empty (4); the queue of tiles, two deep, full (1) and empty (8; FP8: 11). Named barriers
// 1 and 2: the computing warpgroups, each its own.
//
// Cost, head dim 128, per block of 128 keys and 128 queries: 8.4 MFLOP = 2048 tensor-core clocks at
// 4096 FLOP/clk/SM; 16384 exponentials = 1024 clocks at 16/clk/SM, hidden when the warpgroups are
// out of step; 64 KB of keys and values through L2 = 32 B/clk. An H200 is limited by power (690 W,
// 1.6 to 1.7 GHz), so saving instructions helps there even if issue slots are idle. A segment of
// 1024 keys ends with a merge into the running output in shared memory: 64 KB read and written take
// 1024 clocks at 128 B/clk, against 16384 of products, and one warpgroup merges while the other
// computes. Bits: see row_arithmetic.cuh.
//
// Shared memory, head dim 128: queries 32 KB, two blocks of keys and two of values 128 KB, running
// outputs of the merged segments 64 KB (also used as staging for the result).
#include "kernels/attention/key_converter.cuh"
#include "kernels/attention/key_walk.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/common/device.h"
#include "kernels/common/slot_queue.cuh"

namespace slimexx::kernels::attention {
namespace {

constexpr int kTileQueries = 128;
constexpr int kThreads = 384;

// Running merge of the segments before the current one. Each thread keeps its outputs in its own
// slots of shared memory.
template <int kHeadDim>
struct MergedSegments {
  static constexpr bool kMerges = true;
  static constexpr uint32_t kBytes = 64 * kHeadDim * 4;
  uint32_t slots;       // shared address of this thread's first float4; stride 128 * 16 bytes
  uint32_t barrier_id;  // named barrier of this warpgroup
  bool empty = true;
  SoftmaxState state;

  __device__ __forceinline__ float4 read(int i) const {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(slots + i * 2048));
    return x;
  }
  __device__ __forceinline__ void write(int i, float a, float b, float c, float d) const {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(slots + i * 2048), "f"(a), "f"(b),
                 "f"(c), "f"(d)
                 : "memory");
  }

  __device__ __forceinline__ void merge(const float (&o)[kHeadDim / 2], SoftmaxState& finished,
                                        float c) {
    sum_over_quad(finished);
    if (empty) {
      empty = false;
      state = finished;
      sync_named(barrier_id, 128);  // other threads may still read the previous tile (store_rows)
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i) {
        write(i, o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
      }
      return;
    }
    SegmentMerge rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows[i] = plan_merge(state.maximum[i], state.sum[i], finished.maximum[i], finished.sum[i], c);
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) {
      const float4 x = read(i);
      write(i, merge_value(x.x, o[4 * i], rows[0]), merge_value(x.y, o[4 * i + 1], rows[0]),
            merge_value(x.z, o[4 * i + 2], rows[1]), merge_value(x.w, o[4 * i + 3], rows[1]));
    }
  }

  // Merges the last segment into the rows, which then have their final output and state.
  __device__ __forceinline__ void finish(RowTile<kHeadDim>& rows, float c) {
    if (empty) {
      sum_over_quad(rows.state);
      return;
    }
    merge(rows.output, rows.state, c);
    rows.state = state;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) {
      const float4 x = read(i);
      rows.output[4 * i] = x.x;
      rows.output[4 * i + 1] = x.y;
      rows.output[4 * i + 2] = x.z;
      rows.output[4 * i + 3] = x.w;
    }
  }
};

template <int kHeadDim>
struct Shared {
  static constexpr int kStages = 256 / kHeadDim;
  using Rings = KeyRings<kHeadDim, kStages>;
  static constexpr uint32_t kQueryHalfBytes = 64 * 128;
  static constexpr uint32_t kGroupQueryBytes = Rings::kHalves * kQueryHalfBytes;
  static constexpr uint32_t kQueryBytes = 2 * kGroupQueryBytes;
  static constexpr uint32_t kMergedAt = kQueryBytes + Rings::kBytes;
  static constexpr uint32_t kBarriersAt = kMergedAt + 2 * MergedSegments<kHeadDim>::kBytes;
  // Two barriers per warpgroup: queries full, queries empty. Then the queue of tiles.
  static constexpr uint32_t kQueryFullAt = kBarriersAt + Rings::kBarrierBytes;
  static constexpr uint32_t kTilesAt = kQueryFullAt + 32;
  static constexpr uint32_t kFp8At = kTilesAt + SlotQueue::kBytes;
  template <bool kFp8>
  static constexpr uint32_t kBytes = kFp8At + (kFp8 ? ByteStages<kHeadDim, kStages>::kBytes : 0);
};

struct Tile {
  Sequence sequence;
  int index = -1;  // sequence number; -1: no more tiles
  int head, first_query;
};

struct TileQueue : SlotQueue {
  // Called by the loading warp.
  __device__ __forceinline__ void put(const Tile& t) {
    wait(empty(), cursor.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot()), "r"(t.index),
                   "r"(t.head), "r"(t.first_query), "r"(t.sequence.first_token)
                   : "memory");
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(slot() + 16), "r"(t.sequence.queries),
                   "r"(t.sequence.context)
                   : "memory");
      arrive(full());
    }
    cursor.advance();
  }
  // Called by all lanes of a computing or converting warp.
  __device__ __forceinline__ bool take(Tile& t) {
    wait(full(), cursor.parity);
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(t.index), "=r"(t.head), "=r"(t.first_query), "=r"(t.sequence.first_token)
                 : "r"(slot())
                 : "memory");
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(t.sequence.queries), "=r"(t.sequence.context)
                 : "r"(slot() + 16)
                 : "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty());
    cursor.advance();
    return t.index >= 0;
  }
};

// The order of the tiles, in two passes. The second pass has the tiles with the fewest keys of all
// sequences, so that all thread blocks finish at about the same time. Within a sequence the kv head
// changes slowest, so that the running blocks share keys in L2; for each kv head, tiles with more
// keys come first.
struct TileOrder {
  static constexpr int kShortTiles = 2;  // tiles of a sequence and head left to the second pass
  WorkCursor cursor;
  int before = 0;  // second pass: number of tiles in the first pass
  bool second = false;

  // Tiles of one query head in the current pass.
  __device__ __forceinline__ int count_tiles(const Sequence& sequence) const {
    const int tiles = divide_up(sequence.queries, kTileQueries);
    const int late = min(tiles, kShortTiles);
    return second ? late : tiles - late;
  }

  __device__ __forceinline__ int find_sequence(const Problem& problem, int index, int& piece) {
    return cursor.find(problem, index - before, piece, [&](const Sequence& sequence) {
      return count_tiles(sequence) * problem.query_heads;
    });
  }

  // `index` must not decrease from call to call. Returns false past the last tile.
  __device__ __forceinline__ bool find(const Problem& problem, int index, Tile& tile) {
    int piece = 0;
    tile.index = find_sequence(problem, index, piece);
    if (tile.index < 0 && !second) {
      second = true;
      before = cursor.before;
      cursor = {};
      tile.index = find_sequence(problem, index, piece);
    }
    if (tile.index < 0) return false;
    tile.sequence = read_sequence(problem, tile.index);
    const int tiles = count_tiles(tile.sequence);
    tile.head = piece / (tiles * problem.group) * problem.group + piece % problem.group;
    const int shorter = second ? 0 : kShortTiles;
    tile.first_query = (shorter + tiles - 1 - piece / problem.group % tiles) * kTileQueries;
    return true;
  }
};

__device__ __forceinline__ KeyRange keys_of(const Tile& tile, int kv_head) {
  const int end = min(tile.first_query + kTileQueries, tile.sequence.queries);
  return {tile.index,           kv_head, tile.sequence.first_token,
          tile.sequence.keys(), 0,       divide_up(tile.sequence.context + end, kBlock)};
}

// Stages the rounded rows in shared memory (row pitch kHeadDim * 2 + 16 bytes, free of bank
// conflicts) and stores them with 16 bytes per thread.
template <int kHeadDim>
__device__ __forceinline__ void store_rows(const Problem& problem, const Tile& tile,
                                           const RowTile<kHeadDim>& rows, uint32_t staging,
                                           uint32_t barrier_id, int first_row) {
  constexpr uint32_t kPitch = kHeadDim * 2 + 16;
  const int thread = threadIdx.x % 128;
  const int row = thread / 32 * 16 + thread % 32 / 4;
  sync_named(barrier_id, 128);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float inverse = __frcp_rn(rows.state.sum[i]);
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const uint32_t pair =
          finish_pair(rows.output[4 * j + 2 * i], rows.output[4 * j + 2 * i + 1], inverse);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(staging + (row + 8 * i) * kPitch + j * 16 +
                                                   thread % 4 * 4),
                   "r"(pair)
                   : "memory");
    }
  }
  sync_named(barrier_id, 128);
  constexpr int kChunks = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < 64 * kChunks / 128; ++i) {
    const int r = (i * 128 + thread) / kChunks, chunk = thread % kChunks;
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(staging + r * kPitch + chunk * 16));
    const int query = tile.first_query + first_row + r;
    if (query >= tile.sequence.queries) continue;
    const int64_t token = tile.sequence.first_token + query;
    *reinterpret_cast<uint4*>(problem.out + token * problem.out_stride + tile.head * kHeadDim +
                              chunk * 8) = x;
  }
}

template <int kHeadDim>
__device__ __forceinline__ void store_log_sums(const Problem& problem, const Tile& tile,
                                               const RowTile<kHeadDim>& rows, int first_row) {
  if (problem.lse == nullptr || threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (rows.position[i] < 0) continue;
    const int64_t token = tile.sequence.first_token + tile.first_query + first_row + 8 * i;
    problem.lse[token * problem.query_heads + tile.head] =
        log_sum_exp(rows.state.maximum[i], rows.state.sum[i], problem.scale);
  }
}

template <int kHeadDim>
__device__ __forceinline__ void compute_tiles(const Problem& problem, uint32_t shared, int group) {
  using Layout = Shared<kHeadDim>;
  const int thread = threadIdx.x % 128;
  const uint32_t merged = shared + Layout::kMergedAt + group * MergedSegments<kHeadDim>::kBytes;
  KeyWalk<kHeadDim, Layout::kStages, MergedSegments<kHeadDim>, UniformCursor<Layout::kStages>> walk{
      {shared + Layout::kQueryBytes, shared + Layout::kBarriersAt},
      describe_swizzled_tile(shared + group * Layout::kGroupQueryBytes),
      Layout::kQueryHalfBytes,
      shared + Layout::kQueryFullAt + group * 16 + 8,
      static_cast<uint32_t>(1 + group),
      problem.c,
      {merged + thread * 16, static_cast<uint32_t>(1 + group), true, {}},
      {},
      {}};
  const int row = group * 64 + thread / 32 * 16 + thread % 32 / 4;
  const uint32_t query_full = shared + Layout::kQueryFullAt + group * 16;
  TileQueue tiles{{shared + Layout::kTilesAt, {}}};
  Tile tile;
  uint32_t query_parity = 0;
  while (tiles.take(tile)) {
    RowTile<kHeadDim> rows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = tile.first_query + row + 8 * i;
      rows.position[i] = query < tile.sequence.queries ? tile.sequence.context + query : -1;
    }
    walk.segments.empty = true;
    wait(query_full, query_parity);
    query_parity ^= 1;
    const int first_position = tile.sequence.context + tile.first_query + group * 64;
    walk.walk(rows, keys_of(tile, 0), (first_position + 1) / kBlock);
    walk.segments.finish(rows, problem.c);
    store_log_sums<kHeadDim>(problem, tile, rows, row);
    store_rows<kHeadDim>(problem, tile, rows, merged, 1 + group, group * 64);
  }
}

// The loading warp. Its first tile is blockIdx.x; later tiles come from the launch's counter. For
// each tile it loads queries, keys and values.
template <int kHeadDim, bool kFp8>
__device__ __forceinline__ void load_tiles(const Problem& problem, const CUtensorMap& query_map,
                                           const CUtensorMap& key_map, const CUtensorMap& value_map,
                                           uint32_t shared) {
  using Layout = Shared<kHeadDim>;
  const bool leader = threadIdx.x == 0;
  KeyLoader<kHeadDim, Layout::kStages, kFp8> loader{
      problem,
      key_map,
      value_map,
      {shared + Layout::kQueryBytes, shared + Layout::kBarriersAt},
      {shared + Layout::kFp8At},
      {},
      {}};
  TileQueue tiles{{shared + Layout::kTilesAt, {}}};
  TileOrder order;
  Tile tile;
  uint32_t query_parity = 1;
  for (int index = blockIdx.x; order.find(problem, index, tile);) {
    tiles.put(tile);
    const KeyRange range = keys_of(tile, tile.head / problem.group);
    loader.load_first(range);
    for (int group = 0; group < 2; ++group) {
      const uint32_t full = shared + Layout::kQueryFullAt + group * 16;
      wait(full + 8, query_parity);
      if (leader) arrive_expect_bytes(full, Layout::kGroupQueryBytes);
      __syncwarp();
      const int half = threadIdx.x;
      if (half < Layout::Rings::kHalves) {
        load_box(shared + group * Layout::kGroupQueryBytes + half * Layout::kQueryHalfBytes,
                 &query_map, full, half * kBoxColumns, tile.head,
                 tile.sequence.first_token + tile.first_query + group * 64);
      }
    }
    query_parity ^= 1;
    // Take the next tile as late as the atomic's latency allows: while this block is busy with a
    // long tile, an idle block could compute the next one.
    int next = 0;
    loader.load_rest(range, [&] {
      if (leader) next = static_cast<int>(gridDim.x + atomicAdd(problem.next_tile, 1u));
    });
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  tile.index = -1;
  tiles.put(tile);
}

template <int kHeadDim>
__device__ __forceinline__ void convert_tiles(uint32_t shared) {
  using Layout = Shared<kHeadDim>;
  KeyConverter<kHeadDim, Layout::kStages> converter{
      {shared + Layout::kQueryBytes, shared + Layout::kBarriersAt},
      {shared + Layout::kFp8At},
      static_cast<int>(threadIdx.x / 32) - 1,
      {},
      {}};
  TileQueue tiles{{shared + Layout::kTilesAt, {}}};
  Tile tile;
  while (tiles.take(tile)) converter.convert(keys_of(tile, 0));
}

template <int kHeadDim, bool kFp8>
__global__ void __launch_bounds__(kThreads, 1)
    attend_whole_rows(const __grid_constant__ Problem problem,
                      const __grid_constant__ CUtensorMap query_map,
                      const __grid_constant__ CUtensorMap key_map,
                      const __grid_constant__ CUtensorMap value_map) {
  using Layout = Shared<kHeadDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&value_map);
    typename Layout::Rings{shared + Layout::kQueryBytes, shared + Layout::kBarriersAt}.init(
        8, kFp8 ? kConverterArrivals : 1);
    if constexpr (kFp8) ByteStages<kHeadDim, Layout::kStages>{shared + Layout::kFp8At}.init();
    for (uint32_t group = 0; group < 2; ++group) {
      init_mbarrier(shared + Layout::kQueryFullAt + group * 16, 1);
      init_mbarrier(shared + Layout::kQueryFullAt + group * 16 + 8, 4);
    }
    TileQueue{{shared + Layout::kTilesAt, {}}}.init(8 + (kFp8 ? kConvertingWarps : 0));
    fence_mbarrier_init();
  }
  __syncthreads();

  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<kFp8 ? 56 : 40>();
    if (threadIdx.x < 32) {
      load_tiles<kHeadDim, kFp8>(problem, query_map, key_map, value_map, shared);
    } else if constexpr (kFp8) {
      convert_tiles<kHeadDim>(shared);
    }
  } else {
    grow_registers<kFp8 ? 224 : 232>();
    compute_tiles<kHeadDim>(problem, shared, group);
  }
}

template <int kHeadDim, bool kFp8>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  auto* kernel = attend_whole_rows<kHeadDim, kFp8>;
  constexpr int kBytes = Shared<kHeadDim>::template kBytes<kFp8>;
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  CUtensorMap query_map;
  if (!encode_bf16_heads(&query_map, launch.problem.q, launch.tokens, launch.problem.query_heads,
                         kHeadDim, launch.problem.q_stride, 64)) {
    return cudaErrorInvalidValue;
  }
  int sm_count = 0;
  error = count_multiprocessors(sm_count);
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(launch.problem.next_tile, 0, sizeof(uint32_t), stream);
  }
  if (error != cudaSuccess) return error;
  // Upper bound: every sequence may end with a partial tile.
  const int64_t tiles =
      (launch.tokens / kTileQueries + launch.problem.sequences) * launch.problem.query_heads;
  kernel<<<static_cast<unsigned>(tiles < sm_count ? tiles : sm_count), kThreads, kBytes, stream>>>(
      launch.problem, query_map, launch.key_map, launch.value_map);
  return cudaGetLastError();
}

template <bool kFp8>
cudaError_t launch(const Launch& parameters, int head_dim, cudaStream_t stream) {
  return head_dim == 128 ? launch<128, kFp8>(parameters, stream)
                         : launch<64, kFp8>(parameters, stream);
}

}  // namespace

cudaError_t launch_whole_rows(const Launch& parameters, int head_dim, cudaStream_t stream) {
  return parameters.problem.k_scales != nullptr ? launch<true>(parameters, head_dim, stream)
                                                : launch<false>(parameters, head_dim, stream);
}

}  // namespace slimexx::kernels::attention
