// Checks the problem and launches a kernel for each AttentionRun.
#include <algorithm>

#include "kernels/attention/few_rows_load.cuh"
#include "kernels/attention/launch.cuh"
#include "slimexx/kernels/attention.h"

namespace slimexx::kernels {
namespace {

using attention::Launch;

constexpr size_t kCounterBytes = 256;  // the tile counter, in a cache line of its own

int64_t group_of(const AttentionForward& problem) { return problem.query_heads / problem.kv_heads; }

int64_t count_segments(int64_t keys) { return divide_up(keys, kAttentionSegmentKeys); }

// Rows of partial results over all segments and query heads; 0 if there is a single segment.
int64_t count_partials(const AttentionForward& problem) {
  const AttentionRuns& runs = problem.runs;
  const int64_t segments = count_segments(
      std::max({runs.few.max_key_len, runs.split.max_key_len, runs.whole.max_key_len}));
  if (segments <= 1) return 0;
  return segments * problem.query_heads * runs.split_tokens;
}

bool is_served(const AttentionRun& run, int64_t group) {
  return run.sequences >= 0 && run.sequences <= INT32_MAX && run.max_key_len <= INT32_MAX / 2 &&
         run.max_query_len <= run.max_key_len && run.max_query_len * group <= INT32_MAX / 2;
}

bool has_fp8_pages(const AttentionForward& problem) { return problem.k_scales != nullptr; }

bool are_served_fp8_pages(const AttentionForward& problem) {
  return problem.page_table != nullptr && is_given(problem.k_scales) &&
         is_given(problem.v_scales) && problem.k_stride % 16 == 0 && problem.v_stride % 16 == 0;
}

bool is_served(const AttentionForward& problem) {
  const bool paged = problem.page_table != nullptr;
  const int64_t page = problem.page_tokens;
  return (problem.head_dim == 64 || problem.head_dim == 128) && problem.kv_heads > 0 &&
         problem.query_heads > 0 && problem.query_heads % problem.kv_heads == 0 &&
         problem.tokens >= 0 && problem.tokens <= INT32_MAX && problem.scale > 0.0f &&
         is_served(problem.runs.few, group_of(problem)) &&
         is_served(problem.runs.split, group_of(problem)) &&
         is_served(problem.runs.whole, group_of(problem)) &&
         problem.runs.few.max_query_len * group_of(problem) <= kFewAttentionRows &&
         problem.cu_seqlens != nullptr && is_given(problem.q, problem.q_stride) &&
         is_given(problem.k, problem.k_stride) && is_given(problem.v, problem.v_stride) &&
         is_given(problem.out, problem.out_stride) &&
         (problem.k_scales == nullptr) == (problem.v_scales == nullptr) &&
         (!has_fp8_pages(problem) || are_served_fp8_pages(problem)) &&
         (paged ? page >= 16 && (page & (page - 1)) == 0 && problem.pages > 0 &&
                      problem.pages * page <= INT32_MAX
                : problem.context_lens == nullptr);
}

// The launch for sequences [first, first + run.sequences).
Launch describe(const AttentionForward& problem, const AttentionRun& run, int64_t first) {
  Launch launch{};
  attention::Problem& p = launch.problem;
  p.q = static_cast<const uint16_t*>(problem.q);
  p.out = static_cast<uint16_t*>(problem.out);
  p.lse = problem.lse;
  p.cu_seqlens = problem.cu_seqlens + first;
  p.context_lens = problem.context_lens != nullptr ? problem.context_lens + first : nullptr;
  const bool paged = problem.page_table != nullptr;
  p.page_table = paged ? problem.page_table + first * problem.page_table_stride : nullptr;
  p.q_stride = problem.q_stride;
  p.out_stride = problem.out_stride;
  p.page_table_stride = problem.page_table_stride;
  p.page_shift = paged ? log2_of(problem.page_tokens) : 0;
  p.box_rows = paged && problem.page_tokens < kAttentionBlockKeys
                   ? static_cast<int>(problem.page_tokens)
                   : kAttentionBlockKeys;
  p.context_is_written = paged && problem.context_is_written;
  p.sequences = static_cast<int>(run.sequences);
  p.query_heads = static_cast<int>(problem.query_heads);
  p.kv_heads = static_cast<int>(problem.kv_heads);
  p.group = static_cast<int>(group_of(problem));
  p.scale = problem.scale;
  p.c = problem.scale * kLog2E;
  p.max_rows = static_cast<int>(run.max_query_len * group_of(problem));
  p.partial_rows = problem.runs.split_tokens * group_of(problem);
  p.next_tile = static_cast<uint32_t*>(problem.workspace);
  p.partial_output = static_cast<float*>(problem.workspace) + kCounterBytes / sizeof(float);
  p.partial_state =
      reinterpret_cast<float2*>(p.partial_output + count_partials(problem) * problem.head_dim);
  p.k_scales = static_cast<const uint16_t*>(problem.k_scales);
  p.v_scales = static_cast<const uint16_t*>(problem.v_scales);
  launch.tokens = problem.tokens;
  launch.max_segments = static_cast<int>(count_segments(run.max_key_len));
  return launch;
}

// Tensor maps of keys and values: pieces for few_rows.cu and FP8 pages, otherwise boxes.
bool encode_keys(Launch& launch, const AttentionForward& problem, bool few_rows) {
  const int64_t rows =
      problem.page_table != nullptr ? problem.pages * problem.page_tokens : problem.tokens;
  const auto encode = [&](CUtensorMap* map, const void* base, int64_t stride) {
    if (has_fp8_pages(problem)) {
      return attention::encode_byte_pieces(map, base, rows, problem.kv_heads, problem.head_dim,
                                           stride, few_rows);
    }
    return few_rows ? attention::encode_head_pieces(map, base, rows, problem.kv_heads,
                                                    problem.head_dim, stride)
                    : encode_bf16_heads(map, base, rows, problem.kv_heads, problem.head_dim, stride,
                                        launch.problem.box_rows);
  };
  return encode(&launch.key_map, problem.k, problem.k_stride) &&
         encode(&launch.value_map, problem.v, problem.v_stride);
}

using LaunchRun = cudaError_t (*)(const Launch&, int head_dim, cudaStream_t);

cudaError_t launch_run(const AttentionForward& problem, const AttentionRun& run, int64_t first,
                       LaunchRun kernel, cudaStream_t stream) {
  if (run.sequences == 0 || run.max_query_len == 0) return cudaSuccess;
  Launch launch = describe(problem, run, first);
  const bool few_rows = kernel == attention::launch_few_rows;
  if (!encode_keys(launch, problem, few_rows)) return cudaErrorInvalidValue;
  return kernel(launch, static_cast<int>(problem.head_dim), stream);
}

}  // namespace

size_t attention_forward_workspace(const AttentionForward& problem) {
  return kCounterBytes +
         static_cast<size_t>(count_partials(problem)) *
             (static_cast<size_t>(problem.head_dim) * sizeof(float) + sizeof(float2));
}

cudaError_t attention_forward(const AttentionForward& problem, cudaStream_t stream) {
  const AttentionRuns& runs = problem.runs;
  if (problem.tokens == 0 || runs.num_sequences() == 0) return cudaSuccess;
  if (!is_served(problem)) return cudaErrorInvalidValue;
  const size_t needed = attention_forward_workspace(problem);
  if (needed > problem.workspace_bytes || !is_given(problem.workspace, 0)) {
    return cudaErrorInvalidValue;
  }
  const int64_t split_end = runs.few.sequences + runs.split.sequences;
  cudaError_t error =
      launch_run(problem, runs.whole, split_end, attention::launch_whole_rows, stream);
  if (error == cudaSuccess) {
    error =
        launch_run(problem, runs.split, runs.few.sequences, attention::launch_split_keys, stream);
  }
  if (error == cudaSuccess) {
    error = launch_run(problem, runs.few, 0, attention::launch_few_rows, stream);
  }
  return error;
}

}  // namespace slimexx::kernels
