// Combine step of the split kernels: merges a row's segments from left to right, with the
// arithmetic that merge_earlier (row_items.cuh) uses for whole rows.
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/launch.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

constexpr int kWarps = 4;
constexpr int kPieces = kValues / 128;  // pieces of four neighbouring columns per lane

// One warp per row.
__global__ void __launch_bounds__(kWarps * 32)
    merge_latent(const __grid_constant__ Problem problem) {
  enter_kernel();
  const attention::Problem& p = problem.attention;
  const int lane = threadIdx.x % 32;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t sequence_index = index / p.max_rows;
  if (sequence_index >= p.sequences) return;
  const int in_sequence = static_cast<int>(index % p.max_rows);
  const Sequence sequence = read_sequence(p, static_cast<int>(sequence_index));
  const int position = sequence.context + in_sequence / p.group;
  if (in_sequence >= sequence.queries * p.group || position < kLatentSegmentKeys) return;
  const int64_t row = static_cast<int64_t>(sequence.first_token) * p.group + in_sequence;
  float4 output[kPieces];
  float2 state;
  const int segments = position / kLatentSegmentKeys + 1;
  for (int segment = 0; segment < segments; ++segment) {
    const int64_t at = segment * p.partial_rows + row;
    const float2 later = p.partial_state[at];
    const auto* from = reinterpret_cast<const float4*>(p.partial_output + at * kValues) + lane;
    attention::SegmentMerge merge{0.0f, 1.0f, false};
    if (segment == 0) {
      state = later;
    } else {
      merge = attention::plan_merge(state.x, state.y, later.x, later.y, p.c);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float4 x = from[i * 32];
      float4& o = output[i];
      o = segment == 0 ? x
                       : make_float4(attention::merge_value(o.x, x.x, merge),
                                     attention::merge_value(o.y, x.y, merge),
                                     attention::merge_value(o.z, x.z, merge),
                                     attention::merge_value(o.w, x.w, merge));
    }
  }
  if (p.lse != nullptr && lane == 0) {
    p.lse[row] = attention::log_sum_exp(state.x, state.y, p.scale);
  }
  const float inverse = __frcp_rn(state.y);
  uint16_t* out = p.out + row / p.group * p.out_stride + row % p.group * problem.value_dim;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= problem.value_dim) break;
    *reinterpret_cast<uint2*>(out + column) =
        make_uint2(finish_pair(output[i].x, output[i].y, inverse),
                   finish_pair(output[i].z, output[i].w, inverse));
  }
}

}  // namespace

cudaError_t launch_merge(const Launch& parameters, cudaStream_t stream) {
  const attention::Problem& p = parameters.problem.attention;
  const int64_t rows = static_cast<int64_t>(p.sequences) * p.max_rows;
  const auto blocks = static_cast<unsigned>(divide_up(rows, kWarps));
  return launch_early(merge_latent, {dim3(blocks), kWarps * 32}, stream, parameters.problem);
}

}  // namespace slimexx::kernels::latent_attention
