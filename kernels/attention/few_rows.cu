// Few rows: a kv head has at most 16 query rows of a sequence, as in decode. Persistent thread
// blocks take runs of segments in turn; the loading warps run ahead across runs. A run is a whole
// sequence where there are plenty, its segments merged in registers; else one segment. Few
// sequences have a cluster of thread blocks each, the first of which merges; of what is between,
// merge_segments joins the segments.
//
// Neighbours in the order of runs, the kv heads of a sequence first, are read at about the same
// time: they share rows of memory, and sequences with common pages share them in L2.
//
// Cost of a block of 128 keys, head dim 128: 64 KB of keys and values, at 4.27 TB/s over 132 SMs
// 2.03 us, 3240 clocks at 1.6 GHz. Products read 64 KB of shared memory, 512 clocks at 128 B/clk;
// maxima, 1024 exponentials and two barriers about 450 in turn with them; the 16 bulk copies about
// 400 in each of two warps. So memory is the limit, with room for what stands between sequences,
// and thread blocks that are left alone at the end of a launch can take in three times their share.
#include "kernels/attention/few_rows_result.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/common/early_launch.cuh"

namespace slimexx::kernels::attention {
namespace {

constexpr int kThreads = 192;  // one computing warpgroup, a warp that loads keys, one for values

// A run's queries on their way from memory to the swizzled tiles; rows that do not exist are 0.
template <int kHeadDim, int kRows>
struct Queries {
  static constexpr int kChunks = kHeadDim / 8;
  static constexpr int kEach = (kRows * kChunks + 127) / 128;
  uint4 x[kEach];

  __device__ __forceinline__ void read(const Problem& problem, const Run& run) {
    const int rows = run.sequence.queries * problem.group;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = (i * 128 + threadIdx.x) / kChunks, chunk = threadIdx.x % kChunks;
      x[i] = make_uint4(0, 0, 0, 0);
      if (row < rows) {
        const int64_t token = run.sequence.first_token + row / problem.group;
        const int head = run.head * problem.group + row % problem.group;
        x[i] = *reinterpret_cast<const uint4*>(problem.q + token * problem.q_stride +
                                               head * kHeadDim + chunk * 8);
      }
    }
  }
  __device__ __forceinline__ void write(uint8_t* tiles) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = (i * 128 + threadIdx.x) / kChunks, chunk = threadIdx.x % kChunks;
      if (row < kRows) {
        *reinterpret_cast<uint4*>(tiles + chunk / 8 * (kRows * 128) +
                                  swizzled_offset(row, chunk % 8)) = x[i];
      }
    }
  }
};

// The walk's rows are those of the run.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void place_rows(FewRowsWalk<kHeadDim, kRows>& walk,
                                           const Problem& problem, const Run& run) {
  walk.rows = run.sequence.queries * problem.group;
#pragma unroll
  for (int n = 0; n < walk.kOwn; ++n) {
    const int query = (walk.own_column() + n / 2 * 8 + n % 2) / problem.group;
    walk.position[n] = query < run.sequence.queries ? run.sequence.context + query : -1;
  }
}

template <int kHeadDim, int kRows, FewRowsRuns kRuns>
__device__ __forceinline__ void compute_runs(const Problem& problem,
                                             FewRowsWalk<kHeadDim, kRows>& walk) {
  WorkCursor cursor;
  Run run;
  Queries<kHeadDim, kRows> queries;
  int index = blockIdx.x;
  bool found = find_run<kRuns>(problem, cursor, index, run);
  if (found) queries.read(problem, run);
  while (found) {
    queries.write(walk.query_tiles());
    walk.publish();
    // The next run's queries come while this one is walked.
    Run next;
    index += gridDim.x;
    found = find_run<kRuns>(problem, cursor, index, next);
    if (found) queries.read(problem, next);
    place_rows(walk, problem, run);
    RunResult<kHeadDim, kRows> merged;
    for (int segment = run.first_segment; segment < run.last_segment; ++segment) {
      walk.walk(keys_of(run, segment, segment + 1));
      if (segment == run.first_segment) {
        merged.take(walk);
      } else {
        RunResult<kHeadDim, kRows> later;
        later.take(walk);
        merged.join(later, problem.c);
      }
    }
    store_run<kHeadDim, kRows>(problem, run, walk.position, merged);
    run = next;
  }
}

// Each thread block of a cluster has one segment of a sequence; the first merges them.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void compute_shared_run(const Problem& problem,
                                                   FewRowsWalk<kHeadDim, kRows>& walk, int index) {
  WorkCursor cursor;
  Run run;
  if (!find_run<FewRowsRuns::kClusters>(problem, cursor, index, run)) return;
  place_rows(walk, problem, run);
  RunResult<kHeadDim, kRows> merged;
  if (run.first_segment < run.last_segment) {
    Queries<kHeadDim, kRows> queries;
    queries.read(problem, run);
    queries.write(walk.query_tiles());
    walk.publish();
    walk.walk(keys_of(run, run.first_segment, run.last_segment));
    merged.take(walk);
    if (run.first_segment > 0) merged.share(walk.shared);  // all blocks of keys have been read
  }
  sync_cluster();
  const int segments = count_segments(run.sequence);
  if (run.first_segment == 0) {
    for (int rank = 1; rank < segments; ++rank) {
      RunResult<kHeadDim, kRows> later;
      later.read(walk.shared, rank);
      merged.join(later, problem.c);
    }
  }
  sync_cluster();  // shared memory lives until the first has read it
  if (run.first_segment > 0) return;
  run.last_segment = segments;
  store_run<kHeadDim, kRows>(problem, run, walk.position, merged);
}

template <int kHeadDim, int kRows, FewRowsRuns kRuns>
__global__ void __launch_bounds__(kThreads, 1)
    attend_few_rows(const __grid_constant__ Problem problem,
                    const __grid_constant__ CUtensorMap key_map,
                    const __grid_constant__ CUtensorMap value_map, int cluster_blocks) {
  using Layout = FewRowsShared<kHeadDim, kRows>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  using Ring = typename Layout::Ring;
  const Ring keys{shared, shared + Layout::kBarriersAt, {}};
  const Ring values{shared + Ring::kBytes, keys.barriers + Ring::kBarrierBytes, {}};
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&value_map);
    keys.init();
    values.init();
    fence_mbarrier_init();
  }
  __syncthreads();
  enter_kernel();  // the previous kernel wrote queries, and perhaps the lengths
  constexpr bool kClusters = kRuns == FewRowsRuns::kClusters;
  const int first = kClusters ? static_cast<int>(blockIdx.x) / cluster_blocks : blockIdx.x;
  if (threadIdx.x < 128) {
    FewRowsWalk<kHeadDim, kRows> walk;
    walk.memory = memory;
    walk.shared = shared;
    walk.c = problem.c;
    walk.keys = keys;
    walk.values = values;
    if constexpr (kClusters) {
      compute_shared_run<kHeadDim, kRows>(problem, walk, first);
    } else {
      compute_runs<kHeadDim, kRows, kRuns>(problem, walk);
    }
    return;
  }
  const bool loads_keys = threadIdx.x < 160;
  Ring ring = loads_keys ? keys : values;
  WorkCursor cursor;
  Run run;
  for (int index = first; find_run<kRuns>(problem, cursor, index, run); index += gridDim.x) {
    ring.load(problem, loads_keys ? key_map : value_map,
              keys_of(run, run.first_segment, run.last_segment));
  }
}

template <int kHeadDim, int kRows, FewRowsRuns kRuns>
cudaError_t launch(const Launch& launch, int processors, cudaStream_t stream) {
  auto* kernel = attend_few_rows<kHeadDim, kRows, kRuns>;
  const int64_t runs = static_cast<int64_t>(launch.problem.sequences) * launch.problem.kv_heads *
                       (kRuns == FewRowsRuns::kSequences ? 1 : launch.max_segments);
  // A thread block stays with one kv head, and the heads of a sequence end together.
  const int heads = launch.problem.kv_heads;
  int places = processors / heads;
  if (kRuns == FewRowsRuns::kSequences && places > 32) places = places / 32 * 32;
  const int most = places > 0 ? places * heads : processors;
  constexpr bool kClusters = kRuns == FewRowsRuns::kClusters;
  const int64_t blocks = runs < most || kClusters ? runs : most;
  const int cluster = kClusters ? launch.max_segments : 1;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), kThreads,
                          FewRowsShared<kHeadDim, kRows>::kBytes, static_cast<unsigned>(cluster)};
  return launch_early(kernel, shape, stream, launch.problem, launch.key_map, launch.value_map,
                      cluster);
}

template <int kHeadDim, int kRows>
cudaError_t launch(const Launch& parameters, FewRowsRuns runs, int processors,
                   cudaStream_t stream) {
  switch (runs) {
    case FewRowsRuns::kSegments:
      return launch<kHeadDim, kRows, FewRowsRuns::kSegments>(parameters, processors, stream);
    case FewRowsRuns::kSequences:
      return launch<kHeadDim, kRows, FewRowsRuns::kSequences>(parameters, processors, stream);
    case FewRowsRuns::kClusters:
      return launch<kHeadDim, kRows, FewRowsRuns::kClusters>(parameters, processors, stream);
  }
  return cudaErrorInvalidValue;
}

FewRowsRuns choose_runs(const Launch& launch, int processors) {
  constexpr int kPlenty = 3;  // sequences a thread block, so that their lengths even out
  constexpr int kLongest = 8, kLargestCluster = 8;
  const int64_t pairs = static_cast<int64_t>(launch.problem.sequences) * launch.problem.kv_heads;
  if (launch.max_segments <= kLongest && launch.problem.kv_heads <= processors &&
      pairs >= int64_t{kPlenty} * processors) {
    return FewRowsRuns::kSequences;
  }
  // A cluster lies within one part of the chip: many large ones are not all at work at once (16
  // of 8 took 1.3 times as long as single blocks with a merge).
  const int room = launch.max_segments == 2 ? processors : processors / 2;
  const bool fits = launch.max_segments > 1 && launch.max_segments <= kLargestCluster &&
                    pairs * launch.max_segments <= room;
  return fits ? FewRowsRuns::kClusters : FewRowsRuns::kSegments;
}

}  // namespace

cudaError_t launch_few_rows(const Launch& parameters, int head_dim, cudaStream_t stream) {
  int processors = 0;
  cudaError_t error = count_processors(&processors);
  if (error != cudaSuccess) return error;
  const FewRowsRuns runs = choose_runs(parameters, processors);
  const bool narrow = parameters.problem.max_rows <= 8;
  if (head_dim == 128) {
    error = narrow ? launch<128, 8>(parameters, runs, processors, stream)
                   : launch<128, 16>(parameters, runs, processors, stream);
  } else {
    error = narrow ? launch<64, 8>(parameters, runs, processors, stream)
                   : launch<64, 16>(parameters, runs, processors, stream);
  }
  const bool merges = parameters.max_segments > 1 && runs == FewRowsRuns::kSegments;
  return error == cudaSuccess && merges ? launch_merge(parameters, head_dim, stream) : error;
}

}  // namespace slimexx::kernels::attention
