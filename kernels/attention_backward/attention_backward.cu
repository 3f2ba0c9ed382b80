// Checks the problem, divides the workspace, encodes the tensor maps and launches the kernels.
#include "slimexx/kernels/attention_backward.h"

#include "kernels/attention_backward/problem.cuh"
#include "kernels/common/device.h"
#include "kernels/common/exponential.cuh"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"

namespace slimexx::kernels {
namespace {

using attention_gradient::kBlockRows;
using attention_gradient::kHeadsPerPart;
using attention_gradient::kTile;
using attention_gradient::Launch;
using attention_gradient::Problem;

constexpr int64_t kCounterBytes = 256;  // counters in cache lines of their own
static_assert(sizeof(attention_gradient::Counters) <= kCounterBytes);

// The number of parts depends only on the head counts: the order of a sum must not depend on the
// batch.
int64_t count_parts(const AttentionBackward& problem) {
  return divide_up(problem.query_heads / problem.kv_heads, kHeadsPerPart);
}

int64_t pad_tokens(const AttentionBackward& problem) {
  return divide_up(problem.tokens + problem.sequences * kBlockRows, kBlockRows) * kBlockRows;
}

// Bytes for one walk per block of 128 rows, rounded up to 128 to align the arrays after it.
int64_t count_walk_bytes(const AttentionBackward& problem) {
  return divide_up(pad_tokens(problem) / kBlockRows * static_cast<int64_t>(sizeof(int4)), 128) *
         128;
}

int64_t count_partials(const AttentionBackward& problem) {
  const int64_t parts = count_parts(problem);
  return parts == 1 ? 0 : parts * problem.tokens * problem.kv_heads * problem.head_dim;
}

bool has_heads(const AttentionBackward& problem) {
  return problem.kv_heads > 0 && problem.query_heads > 0 &&
         problem.query_heads % problem.kv_heads == 0;
}

// Tests the width, not the pointer: a caller that asks for the workspace size may not have the
// lists yet.
bool has_lists(const AttentionBackward& problem) { return problem.list_width > 0; }

int64_t count_tile_pairs(const AttentionBackward& problem) {
  return attention_gradient::first_tile_pair(problem.tokens, problem.sequences);
}

// Bytes of seen_keys and seeing_queries.
int64_t count_seen_bytes(const AttentionBackward& problem) {
  if (!has_lists(problem)) return 0;
  return 2 * count_tile_pairs(problem) * kTile * static_cast<int64_t>(sizeof(uint2));
}

// The wide kernels handle lists of keys, different sizes of keys and values, and sizes other than
// 64 and 128, as in latent attention.
bool is_wide(const AttentionBackward& problem) {
  return has_lists(problem) || problem.head_dim != problem.value_dim ||
         (problem.head_dim != 64 && problem.head_dim != 128);
}

bool has_served_sizes(const AttentionBackward& problem) {
  const auto fits = [](int64_t dim) { return dim > 0 && dim <= kMostWideHeadDim && dim % 8 == 0; };
  return !is_wide(problem) || (problem.query_heads == problem.kv_heads && fits(problem.head_dim) &&
                               fits(problem.value_dim));
}

bool is_served(const AttentionBackward& problem) {
  return has_heads(problem) && has_served_sizes(problem) && problem.tokens >= 0 &&
         problem.sequences >= 0 && pad_tokens(problem) <= INT32_MAX / 2 &&
         pad_tokens(problem) / kBlockRows * problem.query_heads <= INT32_MAX / 4 &&
         problem.max_len <= problem.tokens && problem.scale > 0.0f && problem.list_width >= 0 &&
         problem.list_width <= INT32_MAX / 2 && is_aligned(problem.query_spans, 16) &&
         (problem.query_spans == nullptr || !has_lists(problem)) &&
         has_lists(problem) == (problem.selected != nullptr) && problem.cu_seqlens != nullptr &&
         problem.lse != nullptr && is_given(problem.q, problem.q_stride) &&
         is_given(problem.k, problem.k_stride) && is_given(problem.v, problem.v_stride) &&
         is_given(problem.out, problem.out_stride) && is_given(problem.dout, problem.dout_stride) &&
         is_given(problem.dq, problem.dq_stride) && is_given(problem.dk, problem.dk_stride) &&
         is_given(problem.dv, problem.dv_stride) && is_aligned(problem.workspace, 128) &&
         problem.workspace_bytes >= attention_backward_workspace(problem);
}

void lay_out_workspace(const AttentionBackward& problem, Problem& p) {
  auto* const bytes = static_cast<uint8_t*>(problem.workspace);
  p.counters = reinterpret_cast<attention_gradient::Counters*>(bytes);
  p.walks = reinterpret_cast<int4*>(bytes + kCounterBytes);
  p.negative_lse = reinterpret_cast<float*>(bytes + kCounterBytes + count_walk_bytes(problem));
  p.delta = p.negative_lse + problem.query_heads * p.padded_tokens;
  float* const rest = p.delta + problem.query_heads * p.padded_tokens;
  if (has_lists(problem)) {
    p.seen_keys = reinterpret_cast<uint2*>(rest);
    p.seeing_queries = p.seen_keys + count_tile_pairs(problem) * kTile;
    return;
  }
  const int64_t partials = count_partials(problem);
  if (partials == 0) return;
  p.partial_dk = rest;
  p.partial_dv = p.partial_dk + partials;
}

Problem describe(const AttentionBackward& problem) {
  Problem p{};
  p.lse = problem.lse;
  p.dq = static_cast<uint16_t*>(problem.dq);
  p.dk = static_cast<uint16_t*>(problem.dk);
  p.dv = static_cast<uint16_t*>(problem.dv);
  p.dq_stride = problem.dq_stride;
  p.dk_stride = problem.dk_stride;
  p.dv_stride = problem.dv_stride;
  p.cu_seqlens = problem.cu_seqlens;
  p.tokens = problem.tokens;
  p.sequences = static_cast<int>(problem.sequences);
  p.query_heads = static_cast<int>(problem.query_heads);
  p.kv_heads = static_cast<int>(problem.kv_heads);
  p.group = p.query_heads / p.kv_heads;
  p.head_dim = static_cast<int>(problem.head_dim);
  p.value_dim = static_cast<int>(problem.value_dim);
  p.parts = static_cast<int>(count_parts(problem));
  p.part_heads = static_cast<int>(divide_up(p.group, p.parts));
  p.scale = problem.scale;
  p.c = problem.scale * kLog2E;
  p.padded_tokens = pad_tokens(problem);
  p.query_spans = reinterpret_cast<const int4*>(problem.query_spans);
  lay_out_workspace(problem, p);
  return p;
}

bool describe_tensors(const AttentionBackward& problem, Launch& launch) {
  const auto encode = [&](CUtensorMap& map, const void* base, int64_t heads, int64_t dim,
                          int64_t stride) {
    return encode_bf16_heads(&map, base, problem.tokens, heads, dim, stride, kTile);
  };
  const int64_t heads = problem.query_heads, dim = problem.head_dim, values = problem.value_dim;
  return encode(launch.q_map, problem.q, heads, dim, problem.q_stride) &&
         encode(launch.out_map, problem.out, heads, values, problem.out_stride) &&
         encode(launch.dout_map, problem.dout, heads, values, problem.dout_stride) &&
         encode(launch.k_map, problem.k, problem.kv_heads, dim, problem.k_stride) &&
         encode(launch.v_map, problem.v, problem.kv_heads, values, problem.v_stride);
}

cudaError_t launch_wide(const Launch& launch, const AttentionBackward& problem, int sm_count,
                        cudaStream_t stream) {
  const attention_gradient::WideOutputs outputs{static_cast<const uint16_t*>(problem.out),
                                                static_cast<const uint16_t*>(problem.dout),
                                                problem.out_stride, problem.dout_stride};
  cudaError_t error = cudaSuccess;
  if (has_lists(problem)) {
    error = launch_mark_seen_keys(launch,
                                  {problem.selected, static_cast<int>(problem.list_width),
                                   static_cast<int>(divide_up(problem.max_len, kTile))},
                                  stream);
  }
  if (error == cudaSuccess) error = launch_wide_statistics(launch, outputs, stream);
  if (error == cudaSuccess) error = launch_wide_query_gradients(launch, sm_count, stream);
  if (error == cudaSuccess) error = launch_wide_key_gradients(launch, sm_count, stream);
  return error;
}

}  // namespace

size_t attention_backward_workspace(const AttentionBackward& problem) {
  if (!has_heads(problem)) return 0;
  return static_cast<size_t>(kCounterBytes + count_walk_bytes(problem) +
                             count_seen_bytes(problem)) +
         sizeof(float) * static_cast<size_t>(2 * problem.query_heads * pad_tokens(problem) +
                                             2 * count_partials(problem));
}

cudaError_t attention_backward(const AttentionBackward& problem, cudaStream_t stream) {
  if (problem.tokens == 0 || problem.sequences == 0) return cudaSuccess;
  if (!is_served(problem)) return cudaErrorInvalidValue;
  Launch launch{};
  launch.problem = describe(problem);
  launch.head_dim = static_cast<int>(problem.head_dim);
  if (!describe_tensors(problem, launch)) return cudaErrorInvalidValue;
  int sm_count = 0;
  cudaError_t error = count_multiprocessors(sm_count);
  if (error == cudaSuccess) error = launch_list_walks(launch, stream);
  if (error == cudaSuccess && is_wide(problem)) {
    return launch_wide(launch, problem, sm_count, stream);
  }
  if (error == cudaSuccess) error = launch_query_gradients(launch, sm_count, stream);
  if (error == cudaSuccess) error = launch_key_gradients(launch, sm_count, stream);
  if (error == cudaSuccess && launch.problem.parts > 1) error = launch_sum_parts(launch, stream);
  return error;
}

}  // namespace slimexx::kernels
