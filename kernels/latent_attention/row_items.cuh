// The consumer of items of 64 rows: walks their keys, merges their segments and stores the results.
// `Walk` is a BlockWalk of a RowForm.
#pragma once
#include "kernels/latent_attention/row_form.cuh"

namespace slimexx::kernels::latent_attention {

// Row statistics merged over the segments before the current one.
struct MergedState {
  float maximum[2], sum[2];
};

__device__ __forceinline__ float4* merged_slots(const Problem& problem, int group) {
  return problem.merged + (static_cast<int64_t>(blockIdx.x) * (kOutputs / 4) * 2 + group) * 128 +
         threadIdx.x % 128;
}
constexpr int kMergedStep = 2 * 128;  // distance between a thread's slots

// Merges the earlier segments, if `any`, into the segment just walked: the walk then holds the
// result of all segments. There is no branch around the outputs, because the compiler would move
// all of them between registers. Without earlier segments the output is multiplied by 1 and 0 is
// added, which at most changes a zero's sign; store_row() removes the sign.
template <class Walk>
__device__ __forceinline__ void merge_earlier(const Problem& problem, Walk& walk,
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
  const float4* slots = merged_slots(problem, Walk::kGroup);
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

template <class Walk>
__device__ __forceinline__ void keep_merged(const Problem& problem, const Walk& walk,
                                            MergedState& merged) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    merged.maximum[i] = walk.state.maximum[i];
    merged.sum[i] = walk.state.sum[i];
  }
  float4* slots = merged_slots(problem, Walk::kGroup);
#pragma unroll
  for (int i = 0; i < kOutputs / 4; ++i) {
    const float* o = walk.output + 4 * i;
    slots[i * kMergedStep] = make_float4(o[0], o[1], o[2], o[3]);
  }
}

// Stores the output of the thread's i-th row, which is finished.
template <class Walk>
__device__ __forceinline__ void store_row(const Problem& problem, const Walk& walk, int64_t row,
                                          int i) {
  const attention::Problem& p = problem.attention;
  const int lane = threadIdx.x % 32;
  if (p.lse != nullptr && Walk::kGroup == 0 && lane % 4 == 0) {
    p.lse[row] = attention::log_sum_exp(walk.state.maximum[i], walk.state.sum[i], p.scale);
  }
  const float inverse = __frcp_rn(walk.state.sum[i]);
  uint16_t* out = p.out + row / p.group * p.out_stride + row % p.group * problem.value_dim;
#pragma unroll
  for (int j = 0; j < kOutputs / 4; ++j) {
    const int column = Walk::kGroup * (kValues / 2) + 8 * j;
    if (column >= problem.value_dim) break;
    *reinterpret_cast<uint32_t*>(out + column + lane % 4 * 2) =
        finish_pair(walk.output[4 * j + 2 * i], walk.output[4 * j + 2 * i + 1], inverse);
  }
}

// Stores a row's partial result of one segment, for launch_merge.
template <class Walk>
__device__ __forceinline__ void store_partial(const Problem& problem, const Walk& walk, int segment,
                                              int64_t row, int i) {
  const attention::Problem& p = problem.attention;
  const int lane = threadIdx.x % 32;
  const int64_t at = segment * p.partial_rows + row;
  if (Walk::kGroup == 0 && lane % 4 == 0) {
    p.partial_state[at] = make_float2(walk.state.maximum[i], walk.state.sum[i]);
  }
  float* out = p.partial_output + at * kValues + Walk::kGroup * (kValues / 2) + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kOutputs / 4; ++j) {
    *reinterpret_cast<float2*>(out + 8 * j) =
        make_float2(walk.output[4 * j + 2 * i], walk.output[4 * j + 2 * i + 1]);
  }
}

template <bool kWhole, class Walk>
__device__ __forceinline__ void store_item(const Problem& problem, const Walk& walk,
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

template <bool kWhole, class Walk>
__device__ __forceinline__ void compute_items(const Problem& problem,
                                              typename Walk::Layout shared) {
  const int heads = problem.attention.group;
  Walk walk{{shared, problem.attention.c}};
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

}  // namespace slimexx::kernels::latent_attention
