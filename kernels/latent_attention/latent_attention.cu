// Checks the problem and launches a kernel for each AttentionRun.
#include "slimexx/kernels/latent_attention.h"

#include <algorithm>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/latent_attention/launch.cuh"

namespace slimexx::kernels {
namespace {

using latent_attention::kBlock;
using latent_attention::kTileRows;
using latent_attention::kValues;
using latent_attention::Launch;

constexpr size_t kCounterBytes = 256;  // the tile counter, in a cache line of its own

int64_t count_segments(int64_t keys) { return divide_up(keys, kLatentSegmentKeys); }

// Tests the width, not the pointer: a caller that asks for the workspace size may not have the
// lists yet.
bool has_lists(const LatentAttentionForward& problem) { return problem.list_width > 0; }

// Rows of partial results over all segments; 0 if there is a single segment.
int64_t count_partials(const LatentAttentionForward& problem) {
  if (has_lists(problem)) return 0;
  const AttentionRuns& runs = problem.runs;
  const int64_t segments = count_segments(std::max(runs.few.max_key_len, runs.split.max_key_len));
  return segments <= 1 ? 0 : segments * problem.query_heads * runs.split_tokens;
}

size_t partial_bytes(const LatentAttentionForward& problem) {
  return static_cast<size_t>(count_partials(problem)) * (kValues * sizeof(float) + sizeof(float2));
}

size_t merged_bytes(const LatentAttentionForward& problem) {
  const int64_t most = has_lists(problem) ? problem.list_width : problem.runs.whole.max_key_len;
  if (count_segments(most) <= 1) return 0;
  return kMultiprocessors * kTileRows * kValues * sizeof(float);
}

bool is_served(const AttentionRun& run, int64_t heads) {
  return run.sequences >= 0 && run.sequences <= INT32_MAX && run.max_key_len <= INT32_MAX / 2 &&
         run.max_query_len <= run.max_key_len && run.max_query_len * heads <= INT32_MAX / 2;
}

// Whether the rows of keys have a supported place: 16-byte aligned and, if FP8, paged.
bool has_served_keys(const LatentAttentionForward& p) {
  if (!p.f8_keys) return is_given(p.keys, p.key_stride);
  return p.page_table != nullptr && is_given(p.keys) && p.key_stride % 16 == 0 &&
         p.key_stride <= INT32_MAX &&
         p.key_stride >= tensor::latent_f8_row_bytes(p.value_dim, p.rotary_dim);
}

bool is_served(const LatentAttentionForward& p) {
  const bool paged = p.page_table != nullptr;
  return p.value_dim > 0 && p.value_dim <= kMostLatentValues && p.value_dim % 8 == 0 &&
         p.rotary_dim > 0 && p.rotary_dim <= kMostLatentRotary && p.rotary_dim % 8 == 0 &&
         p.query_heads > 0 && p.tokens >= 0 && p.tokens * p.query_heads <= INT32_MAX / 2 &&
         p.scale > 0.0f && is_served(p.runs.few, p.query_heads) &&
         is_served(p.runs.split, p.query_heads) && is_served(p.runs.whole, p.query_heads) &&
         p.runs.few.max_query_len * p.query_heads <= kLatentFewRows && p.cu_seqlens != nullptr &&
         is_given(p.q) && has_served_keys(p) && is_given(p.out, p.out_stride) &&
         (paged ? p.page_tokens >= 16 && (p.page_tokens & (p.page_tokens - 1)) == 0 &&
                      p.pages > 0 && p.pages * p.page_tokens <= INT32_MAX
                : p.context_lens == nullptr) &&
         p.list_width >= 0 && p.list_width <= INT32_MAX / 2 &&
         has_lists(p) == (p.selected != nullptr);
}

// The launch for sequences [first, first + run.sequences).
Launch describe(const LatentAttentionForward& problem, const AttentionRun& run, int64_t first) {
  Launch launch{};
  launch.problem.value_dim = static_cast<int>(problem.value_dim);
  attention::Problem& p = launch.problem.attention;
  p.q = static_cast<const uint16_t*>(problem.q);
  p.out = static_cast<uint16_t*>(problem.out);
  p.lse = problem.lse;
  p.cu_seqlens = problem.cu_seqlens + first;
  p.context_lens = problem.context_lens != nullptr ? problem.context_lens + first : nullptr;
  const bool paged = problem.page_table != nullptr;
  p.page_table = paged ? problem.page_table + first * problem.page_table_stride : nullptr;
  p.out_stride = problem.out_stride;
  p.page_table_stride = problem.page_table_stride;
  p.page_shift = paged ? log2_of(problem.page_tokens) : 0;
  p.box_rows = paged ? static_cast<int>(std::min<int64_t>(problem.page_tokens, kBlock)) : kBlock;
  p.context_is_written = paged && problem.context_is_written;
  p.sequences = static_cast<int>(run.sequences);
  p.query_heads = p.group = static_cast<int>(problem.query_heads);
  p.kv_heads = 1;
  p.scale = problem.scale;
  p.c = problem.scale * kLog2E;
  p.max_rows = static_cast<int>(run.max_query_len * problem.query_heads);
  p.partial_rows = problem.runs.split_tokens * problem.query_heads;
  auto* bytes = static_cast<uint8_t*>(problem.workspace);
  p.next_tile = reinterpret_cast<uint32_t*>(bytes);
  launch.problem.merged = reinterpret_cast<float4*>(bytes + kCounterBytes);
  bytes += kCounterBytes + merged_bytes(problem);
  p.partial_output = reinterpret_cast<float*>(bytes);
  p.partial_state = reinterpret_cast<float2*>(p.partial_output + count_partials(problem) * kValues);
  launch.lists = {problem.selected, static_cast<int>(problem.list_width),
                  static_cast<int>(problem.rotary_dim), static_cast<const uint16_t*>(problem.keys),
                  problem.key_stride};
  launch.has_f8_keys = problem.f8_keys;
  const tensor::F8LatentRow row = tensor::latent_f8_row(problem.value_dim, problem.rotary_dim);
  launch.f8_keys = {static_cast<const uint8_t*>(problem.keys),
                    static_cast<uint32_t>(problem.key_stride),
                    launch.problem.value_dim,
                    launch.lists.rotary_dim,
                    static_cast<int>(row.scales_at),
                    static_cast<int>(row.rotary_at),
                    problem.selected,
                    launch.lists.width};
  launch.tokens = problem.tokens;
  launch.max_segments = static_cast<int>(count_segments(run.max_key_len));
  return launch;
}

bool encode_operands(Launch& launch, const LatentAttentionForward& problem) {
  const int64_t width = problem.value_dim + problem.rotary_dim;
  const int64_t rows = problem.tokens * problem.query_heads;
  const int64_t key_rows =
      problem.page_table != nullptr ? problem.pages * problem.page_tokens : problem.tokens;
  const int box_rows = launch.problem.attention.box_rows;
  const auto* q = static_cast<const uint16_t*>(problem.q);
  const bool has_queries =
      encode_bf16_matrix(&launch.query_map, q, rows, problem.value_dim, width, launch.query_rows) &&
      encode_bf16_matrix(&launch.query_rotary_map, q + problem.value_dim, rows, problem.rotary_dim,
                         width, launch.query_rows);
  if (!has_queries || problem.f8_keys) return has_queries;
  const auto* keys = static_cast<const uint16_t*>(problem.keys);
  return encode_bf16_matrix(&launch.keys.map, keys, key_rows, problem.value_dim, problem.key_stride,
                            box_rows) &&
         encode_bf16_matrix(&launch.keys.rotary_map, keys + problem.value_dim, key_rows,
                            problem.rotary_dim, problem.key_stride, box_rows);
}

using LaunchRun = cudaError_t (*)(const Launch&, cudaStream_t);

cudaError_t launch_run(const LatentAttentionForward& problem, const AttentionRun& run,
                       int64_t first, LaunchRun kernel, cudaStream_t stream) {
  if (run.sequences == 0 || run.max_query_len == 0) return cudaSuccess;
  Launch launch = describe(problem, run, first);
  launch.query_rows = kernel == latent_attention::launch_few_rows
                          ? divide_up(launch.problem.attention.max_rows, 8) * 8
                          : kTileRows;
  if (!encode_operands(launch, problem)) return cudaErrorInvalidValue;
  return kernel(launch, stream);
}

// Queries with lists of their keys: one launch for all runs.
cudaError_t launch_lists(const LatentAttentionForward& problem, cudaStream_t stream) {
  const AttentionRuns& runs = problem.runs;
  const auto longest = [&](int64_t AttentionRun::*length) {
    return std::max({runs.few.*length, runs.split.*length, runs.whole.*length});
  };
  return launch_run(problem,
                    {runs.num_sequences(), longest(&AttentionRun::max_query_len),
                     longest(&AttentionRun::max_key_len)},
                    0, latent_attention::launch_listed, stream);
}

}  // namespace

size_t latent_attention_forward_workspace(const LatentAttentionForward& problem) {
  return kCounterBytes + merged_bytes(problem) + partial_bytes(problem);
}

cudaError_t latent_attention_forward(const LatentAttentionForward& problem, cudaStream_t stream) {
  if (problem.tokens == 0 || problem.runs.num_sequences() == 0) return cudaSuccess;
  const bool has_workspace =
      latent_attention_forward_workspace(problem) <= problem.workspace_bytes &&
      is_given(problem.workspace);
  if (!is_served(problem) || !has_workspace) return cudaErrorInvalidValue;
  const AttentionRuns& runs = problem.runs;
  if (has_lists(problem)) return launch_lists(problem, stream);
  const int64_t split_end = runs.few.sequences + runs.split.sequences;
  cudaError_t error =
      launch_run(problem, runs.whole, split_end, latent_attention::launch_whole, stream);
  if (error == cudaSuccess) {
    error =
        launch_run(problem, runs.split, runs.few.sequences, latent_attention::launch_split, stream);
  }
  if (error == cudaSuccess) {
    error = launch_run(problem, runs.few, 0, latent_attention::launch_few_rows, stream);
  }
  return error;
}

}  // namespace slimexx::kernels
