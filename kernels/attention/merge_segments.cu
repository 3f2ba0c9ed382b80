// Combine step of split-KV: merges the partial results of a row's segments from left to right, with
// the arithmetic of whole_rows.cu.
#include "kernels/attention/launch.cuh"
#include "kernels/common/early_launch.cuh"

namespace slimexx::kernels::attention {
namespace {

// One warp for each (sequence, kv head, row); lane i holds kHeadDim / 32 neighbouring columns.
template <int kHeadDim>
__global__ void __launch_bounds__(128) merge_segments(const __grid_constant__ Problem problem) {
  await_previous_grids();  // this kernel starts while the segments are still being computed
  constexpr int kColumns = kHeadDim / 32;
  const int64_t index = blockIdx.x * int64_t{4} + threadIdx.x / 32;
  const int row = static_cast<int>(index % problem.max_rows);
  const int head = static_cast<int>(index / problem.max_rows % problem.kv_heads);
  const int64_t sequence_index = index / problem.max_rows / problem.kv_heads;
  if (sequence_index >= problem.sequences) return;
  const Sequence sequence = read_sequence(problem, static_cast<int>(sequence_index));
  const int position = sequence.context + row / problem.group;
  if (row >= sequence.queries * problem.group || position < kAttentionSegmentKeys) return;
  const int column = threadIdx.x % 32 * kColumns;
  float output[kColumns];
  float2 state;
  const int segments = position / kAttentionSegmentKeys + 1;
#pragma unroll 4
  for (int segment = 0; segment < segments; ++segment) {
    const int64_t at = partial_row(problem, segment, sequence, head, row);
    const float2 later = problem.partial_state[at];
    float values[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; i += 2) {
      const float2 x =
          *reinterpret_cast<const float2*>(problem.partial_output + at * kHeadDim + column + i);
      values[i] = x.x;
      values[i + 1] = x.y;
    }
    SegmentMerge merge{0.0f, 1.0f, false};
    if (segment == 0) {
      state = later;
    } else {
      merge = plan_merge(state.x, state.y, later.x, later.y, problem.c);
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      output[i] = segment == 0 ? values[i] : merge_value(output[i], values[i], merge);
    }
  }
  const int64_t token = sequence.first_token + row / problem.group;
  const int query_head = head * problem.group + row % problem.group;
  if (problem.lse != nullptr && threadIdx.x % 32 == 0) {
    problem.lse[token * problem.query_heads + query_head] =
        log_sum_exp(state.x, state.y, problem.scale);
  }
  const float inverse = __frcp_rn(state.y);
  uint16_t* out = problem.out + token * problem.out_stride + query_head * kHeadDim + column;
#pragma unroll
  for (int i = 0; i < kColumns; i += 2) {
    *reinterpret_cast<uint32_t*>(out + i) = finish_pair(output[i], output[i + 1], inverse);
  }
}

template <int kHeadDim>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(launch.problem.sequences) * launch.problem.kv_heads *
                       launch.problem.max_rows;
  return launch_early(merge_segments<kHeadDim>, {dim3(static_cast<unsigned>((rows + 3) / 4)), 128},
                      stream, launch.problem);
}

}  // namespace

cudaError_t launch_merge(const Launch& parameters, int head_dim, cudaStream_t stream) {
  return head_dim == 128 ? launch<128>(parameters, stream) : launch<64>(parameters, stream);
}

}  // namespace slimexx::kernels::attention
