// Schedule kSplitKeys where a kv head has at most 16 query rows: decode. Persistent thread blocks
// take runs of segments round robin; the loading warps run ahead across runs. A run is a whole
// sequence where there are plenty, its segments merged in registers; else one segment, and
// merge_segments joins them.
//
// Neighbours in the order of runs, the kv heads of a sequence first, are read at the same time:
// they share rows of memory, and sequences with common pages share them in L2.
//
// Cost of a block of 128 keys, head dim 128: 64 KB of keys and values, at 4.27 TB/s over 132 SMs
// 2.03 us, 3240 clocks at 1.6 GHz. Products read 64 KB of shared memory, 512 clocks at 128 B/clk;
// maxima, 1024 exponentials and two barriers about 450 in turn with them; the 16 bulk copies about
// 400 in each of two warps. So memory is the limit, with room for what stands between sequences,
// and thread blocks that are left alone at the end of a launch can take in three times their share.
#include "kernels/attention/few_rows_walk.cuh"
#include "kernels/attention/launch.cuh"

namespace slimexx::kernels::attention {
namespace {

constexpr int kThreads = 192;  // one computing warpgroup, a warp that loads keys, one for values

// Segments [first, last) of a sequence for one kv head.
struct Run {
  Sequence sequence;
  int index, head, first_segment, last_segment;
};

template <bool kWhole>
__device__ __forceinline__ bool find_run(const Problem& problem, WorkCursor& cursor, int index,
                                         Run& run) {
  int within = 0;
  run.index = cursor.find(problem, index, within, [&](const Sequence& sequence) {
    if (!is_split(problem, sequence) || sequence.queries == 0) return 0;
    return (kWhole ? 1 : divide_up(sequence.keys(), kAttentionSegmentKeys)) * problem.kv_heads;
  });
  if (run.index < 0) return false;
  run.sequence = read_sequence(problem, run.index);
  run.head = within % problem.kv_heads;
  run.first_segment = within / problem.kv_heads;
  run.last_segment =
      kWhole ? divide_up(run.sequence.keys(), kAttentionSegmentKeys) : run.first_segment + 1;
  return true;
}

__device__ __forceinline__ KeyRange keys_of(const Run& run, int first_segment, int last_segment) {
  const int keys = run.sequence.keys();
  return {run.index,
          run.head,
          run.sequence.first_token,
          keys,
          first_segment * kSegmentBlocks,
          min(last_segment * kSegmentBlocks, divide_up(keys, kBlock))};
}

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

// The segments of a run so far.
template <int kHeadDim, int kRows>
struct MergedSegments {
  using Walk = FewRowsWalk<kHeadDim, kRows>;
  float output[Walk::kParts][kRows / 2];
  float maximum[Walk::kOwn], sum[Walk::kOwn];

  __device__ __forceinline__ void join(Walk& walk, bool first) {
    float later_sum[Walk::kOwn];
    walk.gather_sums(later_sum);
    SegmentMerge merge[Walk::kOwn];
#pragma unroll
    for (int n = 0; n < Walk::kOwn; ++n) {
      if (first) {
        maximum[n] = walk.maximum[n];
        sum[n] = later_sum[n];
      } else {
        merge[n] = plan_merge(maximum[n], sum[n], walk.maximum[n], later_sum[n], walk.c);
      }
    }
#pragma unroll
    for (int x = 0; x < Walk::kParts * kRows / 2; ++x) {
      const int at = x % (kRows / 2);
      float& earlier = output[x / (kRows / 2)][at];
      const float later = walk.output[x / (kRows / 2)][at];
      earlier = first ? later : merge_value(earlier, later, merge[at / 4 * 2 + at % 2]);
    }
  }
};

// Rows whose keys all lie in the run are finished; rows without keys in it write nothing. Lanes 4
// apart swap values, so that each holds neighbouring columns of one row.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void store_run(const Problem& problem, const Run& run,
                                          const int (&positions)[kRows / 4],
                                          const MergedSegments<kHeadDim, kRows>& merged) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane / 4 % 2 == 1;
  const bool tells_state = threadIdx.x < 8;
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    float2 pairs[2 * (kHeadDim / 64)];
#pragma unroll
    for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
      const float even_row = merged.output[x / 2][4 * g + x % 2 * 2];
      const float odd_row = merged.output[x / 2][4 * g + x % 2 * 2 + 1];
      const float other = __shfl_xor_sync(0xffffffffu, odd ? even_row : odd_row, 4);
      pairs[x] = odd ? make_float2(other, odd_row) : make_float2(even_row, other);
    }
    const int position = odd ? positions[2 * g + 1] : positions[2 * g];
    const float maximum = odd ? merged.maximum[2 * g + 1] : merged.maximum[2 * g];
    const float sum = odd ? merged.sum[2 * g + 1] : merged.sum[2 * g];
    if (position < run.first_segment * kAttentionSegmentKeys) continue;
    const int row = 8 * g + lane % 4 * 2 + (odd ? 1 : 0);
    const int column = static_cast<int>(threadIdx.x / 32) * 16 + lane / 8 * 2;
    if (run.first_segment > 0 || position >= run.last_segment * kAttentionSegmentKeys) {
      const int64_t at = partial_row(problem, run.first_segment, run.index, run.head, row);
      if (tells_state) problem.partial_state[at] = make_float2(maximum, sum);
#pragma unroll
      for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
        *reinterpret_cast<float2*>(problem.partial_output + at * kHeadDim + column + x / 2 * 64 +
                                   x % 2 * 8) = pairs[x];
      }
      continue;
    }
    const int64_t token = run.sequence.first_token + row / problem.group;
    const int head = run.head * problem.group + row % problem.group;
    if (problem.lse != nullptr && tells_state) {
      problem.lse[token * problem.query_heads + head] = log_sum_exp(maximum, sum, problem.scale);
    }
    const float inverse = __frcp_rn(sum);
#pragma unroll
    for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
      *reinterpret_cast<uint32_t*>(problem.out + token * problem.out_stride + head * kHeadDim +
                                   column + x / 2 * 64 + x % 2 * 8) =
          finish_pair(pairs[x].x, pairs[x].y, inverse);
    }
  }
}

template <int kHeadDim, int kRows, bool kWhole>
__device__ __forceinline__ void compute_runs(const Problem& problem, uint8_t* memory,
                                             const BlockRing<kHeadDim>& keys,
                                             const BlockRing<kHeadDim>& values) {
  using Walk = FewRowsWalk<kHeadDim, kRows>;
  Walk walk;
  walk.memory = memory;
  walk.shared = shared_address(memory);
  walk.c = problem.c;
  walk.keys = keys;
  walk.values = values;
  WorkCursor cursor;
  Run run;
  Queries<kHeadDim, kRows> queries;
  int index = blockIdx.x;
  bool found = find_run<kWhole>(problem, cursor, index, run);
  if (found) queries.read(problem, run);
  while (found) {
    queries.write(memory + Walk::Layout::kQueriesAt);
    Walk::publish();
    // The next run's queries come while this one is walked.
    Run next;
    index += gridDim.x;
    found = find_run<kWhole>(problem, cursor, index, next);
    if (found) queries.read(problem, next);
    walk.rows = run.sequence.queries * problem.group;
#pragma unroll
    for (int n = 0; n < Walk::kOwn; ++n) {
      const int query = (Walk::own_column() + n / 2 * 8 + n % 2) / problem.group;
      walk.position[n] = query < run.sequence.queries ? run.sequence.context + query : -1;
    }
    MergedSegments<kHeadDim, kRows> merged;
    for (int segment = run.first_segment; segment < run.last_segment; ++segment) {
      walk.walk(keys_of(run, segment, segment + 1));
      merged.join(walk, segment == run.first_segment);
    }
    store_run<kHeadDim, kRows>(problem, run, walk.position, merged);
    run = next;
  }
}

template <int kHeadDim, int kRows, bool kWhole>
__global__ void __launch_bounds__(kThreads, 1)
    attend_few_rows(const __grid_constant__ Problem problem,
                    const __grid_constant__ CUtensorMap key_map,
                    const __grid_constant__ CUtensorMap value_map) {
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
  await_previous_grids();  // the previous kernel wrote queries, and perhaps the lengths
  allow_next_grid();       // the merge, which waits for the end of this kernel
  if (threadIdx.x < 128) {
    compute_runs<kHeadDim, kRows, kWhole>(problem, memory, keys, values);
    return;
  }
  const bool loads_keys = threadIdx.x < 160;
  Ring ring = loads_keys ? keys : values;
  WorkCursor cursor;
  Run run;
  for (int index = blockIdx.x; find_run<kWhole>(problem, cursor, index, run); index += gridDim.x) {
    ring.load(problem, loads_keys ? key_map : value_map,
              keys_of(run, run.first_segment, run.last_segment));
  }
}

template <int kHeadDim, int kRows, bool kWhole>
cudaError_t launch(const Launch& launch, int processors, cudaStream_t stream) {
  auto* kernel = attend_few_rows<kHeadDim, kRows, kWhole>;
  constexpr int kBytes = FewRowsShared<kHeadDim, kRows>::kBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t runs = static_cast<int64_t>(launch.problem.sequences) * launch.problem.kv_heads *
                       (kWhole ? 1 : launch.max_segments);
  // A thread block stays with one kv head, and the heads of a sequence end together.
  const int heads = launch.problem.kv_heads;
  const int most = processors > heads ? processors / heads * heads : processors;
  const auto blocks = static_cast<unsigned>(runs < most ? runs : most);
  return launch_early(kernel, blocks, kThreads, kBytes, stream, launch.problem, launch.key_map,
                      launch.value_map);
}

template <int kHeadDim, int kRows>
cudaError_t launch(const Launch& parameters, bool whole, int processors, cudaStream_t stream) {
  return whole ? launch<kHeadDim, kRows, true>(parameters, processors, stream)
               : launch<kHeadDim, kRows, false>(parameters, processors, stream);
}

}  // namespace

cudaError_t launch_few_rows(const Launch& parameters, int head_dim, bool whole, int processors,
                            cudaStream_t stream) {
  const bool narrow = parameters.problem.partial_rows <= 8;
  if (head_dim == 128) {
    return narrow ? launch<128, 8>(parameters, whole, processors, stream)
                  : launch<128, 16>(parameters, whole, processors, stream);
  }
  return narrow ? launch<64, 8>(parameters, whole, processors, stream)
                : launch<64, 16>(parameters, whole, processors, stream);
}

}  // namespace slimexx::kernels::attention
