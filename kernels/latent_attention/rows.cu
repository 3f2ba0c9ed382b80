// Latent attention: a thread block walks the keys of 64 (token, head) rows, all of them (whole) or
// one segment of them (split). Both run the same walk; in the numeric form of
// kernels/attention/row_arithmetic.cuh, with blocks and segments of their own.
//
// How to read: problem.cuh has the items and the layout of shared memory, load.cuh is the producer,
// block_walk.cuh with row_form.cuh the consumer. Roles: warpgroup 0 loads (one warp), warpgroups 1
// and 2 compute. Barriers, for each of two stages of keys: full of each box of 64 columns (1
// arrival, the loading warp); empty of each warpgroup's values (4, lane 0 of each of its warps) and
// of the rotary keys (8). Queries: full (1), empty (8); the queue of items, two deep: full (1),
// empty (8).
//
// Cost of a block of 64 keys: scores 64 x 64 x 576 and output 64 x 64 x 512, 1088 tensor-core
// clocks each at 4096 FLOP/clk/SM and together 2176; 72 KB of keys, at 4.27 TB/s over 132 SMs
// 3700 clocks when they come from memory, and 34 B/clk when many tiles read them from L2. So decode
// is bound by memory, and training by the tensor cores and L2 about equally.
//
// A walk through several segments keeps the merged output of those before in memory (L2): 128 KB
// of fp32, read and written once a segment of 2048 keys, 256 KB for 70,000 clocks of products.
//
// Shared memory: queries 72 KB, two blocks of keys 144 KB. Registers: 128 of outputs, 32 of scores,
// 16 of weights.
#include <algorithm>

#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/load.cuh"
#include "kernels/latent_attention/row_form.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

template <int kGroup>
using Walk = BlockWalk<RowForm<kGroup>>;
using Shared = RowForm<0>::Layout;

// Of a row's segments before the current one.
struct MergedState {
  float maximum[2], sum[2];
};

__device__ __forceinline__ float4* merged_slots(const Problem& problem, int group) {
  return problem.merged + (static_cast<int64_t>(blockIdx.x) * (kOutputs / 4) * 2 + group) * 128 +
         threadIdx.x % 128;
}
constexpr int kMergedStep = 2 * 128;  // from a thread's slot to its next

// The segments before the one that was walked join it, if there are any: the walk then holds the
// result of all. Without a branch, under which the compiler would move all outputs: with none the
// output is multiplied by 1, which at most turns a zero's sign, and store_row() erases that.
template <int kGroup>
__device__ __forceinline__ void merge_earlier(const Problem& problem, Walk<kGroup>& walk,
                                              MergedState& merged, bool any) {
  attention::SegmentMerge rows[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows[i] = {0.0f, 1.0f, false};
    if (!any) continue;
    rows[i] = attention::plan_merge(merged.maximum[i], merged.sum[i], walk.state.maximum[i],
                                    walk.state.sum[i], walk.c);
    walk.state.maximum[i] = merged.maximum[i];
    walk.state.sum[i] = merged.sum[i];
  }
  const float4* slots = merged_slots(problem, kGroup);
#pragma unroll
  for (int i = 0; i < kOutputs / 4; ++i) {
    float* o = walk.output + 4 * i;
    float4 x{};
    if (any) x = slots[i * kMergedStep];
    o[0] = attention::merge_value(x.x, o[0], rows[0]);
    o[1] = attention::merge_value(x.y, o[1], rows[0]);
    o[2] = attention::merge_value(x.z, o[2], rows[1]);
    o[3] = attention::merge_value(x.w, o[3], rows[1]);
  }
}

template <int kGroup>
__device__ __forceinline__ void keep_merged(const Problem& problem, const Walk<kGroup>& walk,
                                            MergedState& merged) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    merged.maximum[i] = walk.state.maximum[i];
    merged.sum[i] = walk.state.sum[i];
  }
  float4* slots = merged_slots(problem, kGroup);
#pragma unroll
  for (int i = 0; i < kOutputs / 4; ++i) {
    const float* o = walk.output + 4 * i;
    slots[i * kMergedStep] = make_float4(o[0], o[1], o[2], o[3]);
  }
}

// A row that is complete.
template <int kGroup>
__device__ __forceinline__ void store_row(const Problem& problem, const Walk<kGroup>& walk,
                                          int64_t row, int i) {
  const attention::Problem& p = problem.attention;
  const int lane = threadIdx.x % 32;
  if (p.lse != nullptr && kGroup == 0 && lane % 4 == 0) {
    p.lse[row] = attention::log_sum_exp(walk.state.maximum[i], walk.state.sum[i], p.scale);
  }
  const float inverse = __frcp_rn(walk.state.sum[i]);
  uint16_t* out = p.out + row / p.group * p.out_stride + row % p.group * problem.value_dim;
#pragma unroll
  for (int j = 0; j < kOutputs / 4; ++j) {
    const int column = kGroup * (kValues / 2) + 8 * j;
    if (column >= problem.value_dim) break;
    *reinterpret_cast<uint32_t*>(out + column + lane % 4 * 2) =
        finish_pair(walk.output[4 * j + 2 * i], walk.output[4 * j + 2 * i + 1], inverse);
  }
}

// A row's share of one segment, for launch_merge.
template <int kGroup>
__device__ __forceinline__ void store_partial(const Problem& problem, const Walk<kGroup>& walk,
                                              int segment, int64_t row, int i) {
  const attention::Problem& p = problem.attention;
  const int lane = threadIdx.x % 32;
  const int64_t at = segment * p.partial_rows + row;
  if (kGroup == 0 && lane % 4 == 0) {
    p.partial_state[at] = make_float2(walk.state.maximum[i], walk.state.sum[i]);
  }
  float* out = p.partial_output + at * kValues + kGroup * (kValues / 2) + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kOutputs / 4; ++j) {
    *reinterpret_cast<float2*>(out + 8 * j) =
        make_float2(walk.output[4 * j + 2 * i], walk.output[4 * j + 2 * i + 1]);
  }
}

template <bool kWhole, int kGroup>
__device__ __forceinline__ void store_item(const Problem& problem, const Walk<kGroup>& walk,
                                           const Item& item) {
  const int segment = item.first_block / kSegmentBlocks;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int position = walk.position[i];
    const int64_t row = item.row + row_of_thread() + 8 * i;
    if (kWhole ? position < 0 : position < segment * kLatentSegmentKeys) continue;
    if (kWhole || position < kLatentSegmentKeys) {
      store_row(problem, walk, row, i);
    } else {
      store_partial(problem, walk, segment, row, i);
    }
  }
}

template <bool kWhole, int kGroup>
__device__ __forceinline__ void compute_items(const Problem& problem, Shared shared) {
  const int heads = problem.attention.group;
  Walk<kGroup> walk{{shared, problem.attention.c}};
  ItemQueue items = shared.items();
  uint32_t item_count = 0;
  for (Item item; (item = items.take()).rows > 0; ++item_count) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = row_of_thread() + 8 * i;
      walk.position[i] = row < item.rows ? item.position(row, heads) : -1;
    }
    const int first_masked = (item.position(0, heads) + 1) / kBlock;
    wait(shared.queries_full(), item_count % 2);
    MergedState merged;
    for (int block = item.first_block; block < item.last_block; block += kSegmentBlocks) {
      const int end = min(block + kSegmentBlocks, item.last_block);
      const bool last = end == item.last_block;
      walk.release_queries = last;
      walk.walk(block, end, item.keys, first_masked);
      walk.join_sums();
      if constexpr (kWhole) {
        merge_earlier(problem, walk, merged, block > 0);
        if (!last) keep_merged(problem, walk, merged);
      }
    }
    store_item<kWhole>(problem, walk, item);
  }
}

template <bool kWhole>
__global__ void __launch_bounds__(kThreads, 1)
    attend_latent(const __grid_constant__ Problem problem,
                  const __grid_constant__ CUtensorMap query_map,
                  const __grid_constant__ CUtensorMap query_rotary_map,
                  const __grid_constant__ CUtensorMap key_map,
                  const __grid_constant__ CUtensorMap key_rotary_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&query_rotary_map);
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&key_rotary_map);
    shared.init();
  }
  __syncthreads();
  enter_kernel();  // the previous kernel wrote queries, and perhaps the lengths
  // The same in all lanes, and the compiler may know.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<24>();
    if (threadIdx.x < 32) {
      load_items<kWhole>(problem.attention, {query_map, query_rotary_map, key_map, key_rotary_map},
                         shared);
    }
  } else {
    grow_registers<240>();
    if (group == 0) {
      compute_items<kWhole, 0>(problem, shared);
    } else {
      compute_items<kWhole, 1>(problem, shared);
    }
  }
}

template <bool kWhole>
cudaError_t launch(const Launch& launch, int64_t items, cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  // Merged outputs have room for so many thread blocks.
  const int64_t blocks = std::min({items, int64_t{sm_count}, kMultiprocessors});
  return launch_early(attend_latent<kWhole>,
                      {dim3(static_cast<unsigned>(blocks)), kThreads, Shared::kBytes}, stream,
                      launch.problem, launch.query_map, launch.query_rotary_map, launch.key_map,
                      launch.key_rotary_map);
}

}  // namespace

cudaError_t launch_whole(const Launch& parameters, cudaStream_t stream) {
  const attention::Problem& p = parameters.problem.attention;
  const cudaError_t error = cudaMemsetAsync(p.next_tile, 0, sizeof(uint32_t), stream);
  if (error != cudaSuccess) return error;
  // Every sequence may end with a part of a tile.
  return launch<true>(parameters, parameters.tokens * p.group / kTileRows + p.sequences, stream);
}

cudaError_t launch_split(const Launch& parameters, cudaStream_t stream) {
  const attention::Problem& p = parameters.problem.attention;
  const int64_t tiles = divide_up(p.max_rows, kTileRows);
  const cudaError_t error =
      launch<false>(parameters, tiles * parameters.max_segments * p.sequences, stream);
  const bool merges = parameters.max_segments > 1;
  return error == cudaSuccess && merges ? launch_merge(parameters, stream) : error;
}

}  // namespace slimexx::kernels::latent_attention
