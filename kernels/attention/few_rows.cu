// Few rows: a kv head has at most 16 query rows of a sequence, as in decode. Persistent thread
// blocks take work items round robin; the loading warps run ahead across items. With many
// sequences, an item is a whole sequence, whose segments are merged in registers. With few
// sequences, a cluster takes a sequence, one segment per thread block, and its first block merges.
// Otherwise an item is one segment, and the kernel merge_segments combines them (split-KV).
//
// Neighbouring items are read at about the same time. They are the kv heads of one sequence, whose
// keys are adjacent in memory, then the next sequences, which share common pages in L2.
//
// How to read: few_rows_work.cuh assigns and stores, few_rows_load.cuh is the producer, and
// few_rows_walk.cuh the consumer. Roles: warps 0 to 3 compute (one warpgroup), warp 4 loads keys,
// warp 5 values.
//
// Barriers, for each stage of either ring: full, 1 arrival (the loading warp's lane 0, with the
// bytes of its copies); empty, 4 arrivals (lane 0 of each computing warp). Named barrier 1: the
// computing warpgroup.
//
// Shared memory, head dim 128: three blocks of 128 keys and three of values, 192 KB; then queries,
// the weights of two blocks, sums and maxima.
//
// Cost of a block of 128 keys, head dim 128: 64 KB of keys and values take 2.03 us at 4.27 TB/s
// over 132 SMs, or 3240 clocks at 1.6 GHz. Products read 64 KB of shared memory: 512 clocks at 128
// B/clk. Maxima, 1024 exponentials and two barriers take about 450 clocks, not overlapped with the
// products. The 8 TMA loads of each loading warp take about 400 clocks. So memory bandwidth is
// the limit, with time to spare for the work between sequences, and the last thread blocks of a
// launch can load at three times their share of the bandwidth.
//
// FP8 pages: a block is 33 KB, 1640 clocks. Dequantising its 32,768 elements takes 2.75
// instructions each: 700 issue slots of each of the four schedulers. Shared memory moves the block
// twice, in 520 clocks. A warpgroup dequantises, multiplies and weighs one after another, which
// would take about 2300 clocks alone. So two thread blocks share a multiprocessor, each with half
// of the memory, and have 3280 clocks for a block. Two blocks of keys and two of values if there
// are 16 rows.
#include "kernels/attention/few_rows_work.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"

namespace slimexx::kernels::attention {
namespace {

constexpr int kThreads = 192;  // one computing warpgroup, a warp that loads keys, one for values
// Per multiprocessor. While one thread block of FP8 keys waits for its products, the other one
// dequantises.
template <bool kFp8>
constexpr int kResidentBlocks = kFp8 ? 2 : 1;

// Copies an item's queries from global memory, through registers, to the swizzled tiles in shared
// memory. Rows that do not exist are 0. FP8: the columns get the order of the keys' operands.
template <int kHeadDim, int kRows, bool kFp8>
struct Queries {
  static constexpr int kChunks = kHeadDim / 8;
  static constexpr int kEach = (kRows * kChunks + 127) / 128;
  uint4 x[kEach];

  __device__ __forceinline__ void read(const Problem& problem, const WorkItem& item) {
    const int rows = item.sequence.queries * problem.group;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = (i * 128 + threadIdx.x) / kChunks, chunk = threadIdx.x % kChunks;
      x[i] = make_uint4(0, 0, 0, 0);
      if (row < rows) {
        const int64_t token = item.sequence.first_token + row / problem.group;
        const int head = item.head * problem.group + row % problem.group;
        x[i] = *reinterpret_cast<const uint4*>(problem.q + token * problem.q_stride +
                                               head * kHeadDim + chunk * 8);
      }
    }
  }
  __device__ __forceinline__ void write(uint8_t* tiles) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = (i * 128 + threadIdx.x) / kChunks, chunk = threadIdx.x % kChunks;
      const uint4 ordered = kFp8 ? order_columns(x[i]) : x[i];
      if (row < kRows) {
        *reinterpret_cast<uint4*>(tiles + chunk / 8 * (kRows * 128) +
                                  swizzled_offset(row, chunk % 8)) = ordered;
      }
    }
  }
};

// Sets the positions of the walk's rows from the item.
template <int kHeadDim, int kRows, bool kFp8>
__device__ __forceinline__ void place_rows(FewRowsWalk<kHeadDim, kRows, kFp8>& walk,
                                           const Problem& problem, const WorkItem& item) {
  walk.rows = item.sequence.queries * problem.group;
#pragma unroll
  for (int n = 0; n < walk.kOwn; ++n) {
    const int query = (walk.own_column() + n / 2 * 8 + n % 2) / problem.group;
    walk.position[n] = query < item.sequence.queries ? item.sequence.context + query : -1;
  }
}

template <int kHeadDim, int kRows, FewRowsSplit kSplit, bool kFp8>
__device__ __forceinline__ void compute_items(const Problem& problem,
                                              FewRowsWalk<kHeadDim, kRows, kFp8>& walk) {
  WorkCursor cursor;
  WorkItem item;
  Queries<kHeadDim, kRows, kFp8> queries;
  int index = blockIdx.x;
  bool found = find_item<kSplit>(problem, cursor, index, item);
  if (found) queries.read(problem, item);
  while (found) {
    queries.write(walk.query_tiles());
    walk.publish();
    // Read the next item's queries while this item is computed.
    WorkItem next;
    index += gridDim.x;
    found = find_item<kSplit>(problem, cursor, index, next);
    if (found) queries.read(problem, next);
    place_rows(walk, problem, item);
    ItemResult<kHeadDim, kRows, kFp8> merged;
    for (int segment = item.first_segment; segment < item.last_segment; ++segment) {
      walk.walk(keys_of(item, segment, segment + 1));
      if (segment == item.first_segment) {
        merged.take(walk);
      } else {
        ItemResult<kHeadDim, kRows, kFp8> later;
        later.take(walk);
        merged.join(later, problem.c);
      }
    }
    if (kSplit != FewRowsSplit::kSequences && !found) allow_next_grid();
    store_result(problem, item, walk.position, merged);
    item = next;
  }
}

// Each thread block of a cluster computes one segment of a sequence; the first block merges them.
template <int kHeadDim, int kRows, bool kFp8>
__device__ __forceinline__ void compute_cluster_item(const Problem& problem,
                                                     FewRowsWalk<kHeadDim, kRows, kFp8>& walk,
                                                     int index) {
  WorkCursor cursor;
  WorkItem item;
  if (!find_item<FewRowsSplit::kClusters>(problem, cursor, index, item)) return;
  place_rows(walk, problem, item);
  ItemResult<kHeadDim, kRows, kFp8> merged;
  if (item.first_segment < item.last_segment) {
    Queries<kHeadDim, kRows, kFp8> queries;
    queries.read(problem, item);
    queries.write(walk.query_tiles());
    walk.publish();
    walk.walk(keys_of(item, item.first_segment, item.last_segment));
    merged.take(walk);
    // All key blocks have been read, so their buffers can hold the result.
    if (item.first_segment > 0) merged.share(walk.shared);
  }
  allow_next_grid();
  sync_cluster();
  const int segments = count_segments(item.sequence);
  if (item.first_segment == 0) {
    for (int rank = 1; rank < segments; ++rank) {
      ItemResult<kHeadDim, kRows, kFp8> later;
      later.read(walk.shared, rank);
      merged.join(later, problem.c);
    }
  }
  sync_cluster();  // no block may exit before the first block has read its shared memory
  if (item.first_segment > 0) return;
  item.last_segment = segments;
  store_result(problem, item, walk.position, merged);
}

template <int kHeadDim, int kRows, FewRowsSplit kSplit, bool kFp8>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<kFp8>)
    attend_few_rows(const __grid_constant__ Problem problem,
                    const __grid_constant__ CUtensorMap key_map,
                    const __grid_constant__ CUtensorMap value_map, int cluster_blocks) {
  using Layout = FewRowsShared<kHeadDim, kRows, kFp8>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  using Ring = typename Layout::Ring;
  const Ring keys{shared, shared + Layout::kBarriersAt, shared + Layout::kScalesAt, {}};
  const Ring values{shared + Ring::kBytes,
                    keys.barriers + Ring::kBarrierBytes,
                    keys.block_scales + Ring::kScaleBytes,
                    {}};
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&value_map);
    keys.init();
    values.init();
    fence_mbarrier_init();
  }
  __syncthreads();
  // The previous kernel wrote the queries, the newest keys and values and, unless
  // context_is_written, perhaps the context. With few sequences (kSegments, kClusters) the next
  // kernel is allowed to start only at the end: it is a product that reads its weights at once,
  // which would delay the loads of keys here. With context_is_written the loading warps wait later,
  // before the first block that may not be written yet.
  if (threadIdx.x < 128 || !problem.context_is_written) {
    await_previous_grids();
    if constexpr (kSplit == FewRowsSplit::kSequences) allow_next_grid();
  }
  constexpr bool kClusters = kSplit == FewRowsSplit::kClusters;
  const int first = kClusters ? static_cast<int>(blockIdx.x) / cluster_blocks : blockIdx.x;
  if (threadIdx.x < 128) {
    FewRowsWalk<kHeadDim, kRows, kFp8> walk;
    walk.memory = memory;
    walk.shared = shared;
    walk.c = problem.c;
    walk.keys = keys;
    walk.values = values;
    if constexpr (kClusters) {
      compute_cluster_item(problem, walk, first);
    } else {
      compute_items<kHeadDim, kRows, kSplit>(problem, walk);
    }
    return;
  }
  const bool loads_keys = threadIdx.x < 160;
  Ring ring = loads_keys ? keys : values;
  WorkCursor cursor;
  WorkItem item;
  for (int index = first; find_item<kSplit>(problem, cursor, index, item); index += gridDim.x) {
    KeyRange range = keys_of(item, item.first_segment, item.last_segment);
    range.written_blocks = count_written_blocks(problem, item.sequence.context, kBlock);
    ring.load(problem, loads_keys ? key_map : value_map,
              loads_keys ? problem.k_scales : problem.v_scales, range);
  }
}

// `block_count`: the number of thread blocks that run at the same time.
template <int kHeadDim, int kRows, FewRowsSplit kSplit, bool kFp8>
cudaError_t launch(const Launch& launch, int block_count, cudaStream_t stream) {
  auto* kernel = attend_few_rows<kHeadDim, kRows, kSplit, kFp8>;
  const int64_t items = static_cast<int64_t>(launch.problem.sequences) * launch.problem.kv_heads *
                        (kSplit == FewRowsSplit::kSequences ? 1 : launch.max_segments);
  // If there are no more kv heads than block_count, the grid is a multiple of the kv heads: a
  // thread block keeps its kv head in all rounds, and the heads of a sequence finish together.
  const int heads = launch.problem.kv_heads;
  int places = block_count / heads;
  if (kSplit == FewRowsSplit::kSequences && places > 32) places = places / 32 * 32;
  const int most = places > 0 ? places * heads : block_count;
  constexpr bool kClusters = kSplit == FewRowsSplit::kClusters;
  const int64_t blocks = items < most || kClusters ? items : most;
  const int cluster = kClusters ? launch.max_segments : 1;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), kThreads,
                          FewRowsShared<kHeadDim, kRows, kFp8>::kBytes,
                          static_cast<unsigned>(cluster)};
  return launch_early(kernel, shape, stream, launch.problem, launch.key_map, launch.value_map,
                      cluster);
}

template <int kHeadDim, int kRows, bool kFp8>
cudaError_t launch(const Launch& parameters, FewRowsSplit split, int block_count,
                   cudaStream_t stream) {
  using enum FewRowsSplit;
  switch (split) {
    case kSegments:
      return launch<kHeadDim, kRows, kSegments, kFp8>(parameters, block_count, stream);
    case kSequences:
      return launch<kHeadDim, kRows, kSequences, kFp8>(parameters, block_count, stream);
    case kClusters:
      return launch<kHeadDim, kRows, kClusters, kFp8>(parameters, block_count, stream);
  }
  return cudaErrorInvalidValue;
}

FewRowsSplit choose_split(const Launch& launch, int sm_count, int block_count) {
  constexpr int kPlenty = 3;  // with this many sequences per thread block, their lengths even out
  constexpr int kLongest = 8, kLargestCluster = 8;
  const int64_t pairs = static_cast<int64_t>(launch.problem.sequences) * launch.problem.kv_heads;
  if (launch.max_segments <= kLongest && launch.problem.kv_heads <= block_count &&
      pairs >= int64_t{kPlenty} * block_count) {
    return FewRowsSplit::kSequences;
  }
  // A cluster runs within one GPC, so many large clusters do not all fit at once (16 clusters of 8
  // blocks took 1.3 times as long as separate blocks with a merge).
  const int room = launch.max_segments == 2 ? sm_count : sm_count / 2;
  const bool fits = launch.max_segments > 1 && launch.max_segments <= kLargestCluster &&
                    pairs * launch.max_segments <= room;
  return fits ? FewRowsSplit::kClusters : FewRowsSplit::kSegments;
}

template <bool kFp8>
cudaError_t launch(const Launch& parameters, int head_dim, cudaStream_t stream) {
  int sm_count = 0;
  cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  const int blocks = sm_count * kResidentBlocks<kFp8>;
  const FewRowsSplit split = choose_split(parameters, sm_count, blocks);
  const bool narrow = parameters.problem.max_rows <= 8;
  if (head_dim == 128) {
    error = narrow ? launch<128, 8, kFp8>(parameters, split, blocks, stream)
                   : launch<128, 16, kFp8>(parameters, split, blocks, stream);
  } else {
    error = narrow ? launch<64, 8, kFp8>(parameters, split, blocks, stream)
                   : launch<64, 16, kFp8>(parameters, split, blocks, stream);
  }
  const bool merges = parameters.max_segments > 1 && split == FewRowsSplit::kSegments;
  return error == cudaSuccess && merges ? launch_merge(parameters, head_dim, stream) : error;
}

}  // namespace

cudaError_t launch_few_rows(const Launch& parameters, int head_dim, cudaStream_t stream) {
  return parameters.problem.k_scales != nullptr ? launch<true>(parameters, head_dim, stream)
                                                : launch<false>(parameters, head_dim, stream);
}

}  // namespace slimexx::kernels::attention
