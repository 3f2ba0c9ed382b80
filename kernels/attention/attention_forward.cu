// Checks a problem, describes its tensors and launches the schedules it needs.
#include "kernels/attention/few_rows_load.cuh"
#include "kernels/attention/launch.cuh"
#include "slimexx/kernels/attention.h"

namespace slimexx::kernels {
namespace {

using attention::Launch;

// Rows per kv head up to which a sequence is walked by segments (kAuto).
constexpr int kAutoSplitRows = 64;
constexpr size_t kCounterBytes = 256;  // the tile counter, alone in its cache line

struct Plan {
  bool whole = false, split = false;
  int64_t split_rows = -1;  // sequences with at most so many rows per kv head are split
  int64_t partial_rows = 0;
  int64_t segments = 0;
  int64_t partials = 0;  // rows of partial results
};

int64_t group_of(const AttentionForward& problem) { return problem.query_heads / problem.kv_heads; }

Plan plan_schedules(const AttentionForward& problem) {
  Plan plan;
  const int64_t longest = problem.max_query_len * group_of(problem);
  const AttentionSchedule schedule = problem.schedule;
  if (schedule == AttentionSchedule::kSplitKeys) plan.split_rows = longest;
  // Without a context a short sequence has few keys: nothing to split.
  const bool may_split = problem.context_lens != nullptr;
  if (schedule == AttentionSchedule::kAuto && may_split) plan.split_rows = kAutoSplitRows;
  plan.split = plan.split_rows >= 0;
  plan.whole = longest > plan.split_rows;
  if (plan.split) {
    plan.partial_rows = longest < plan.split_rows ? longest : plan.split_rows;
    plan.segments = (problem.max_key_len + kAttentionSegmentKeys - 1) / kAttentionSegmentKeys;
    if (plan.segments > 1) {
      plan.partials = plan.segments * problem.sequences * problem.kv_heads * plan.partial_rows;
    }
  }
  return plan;
}

bool is_aligned(const void* pointer, int64_t stride) {
  return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 8 == 0;
}

bool is_served(const AttentionForward& problem) {
  const bool paged = problem.page_table != nullptr;
  const int64_t page = problem.page_tokens;
  return (problem.head_dim == 64 || problem.head_dim == 128) && problem.kv_heads > 0 &&
         problem.query_heads > 0 && problem.query_heads % problem.kv_heads == 0 &&
         problem.tokens >= 0 && problem.tokens <= INT32_MAX && problem.sequences >= 0 &&
         problem.max_key_len <= INT32_MAX / 2 && problem.max_query_len <= problem.max_key_len &&
         problem.max_query_len * group_of(problem) <= INT32_MAX / 2 && problem.scale > 0.0f &&
         problem.cu_seqlens != nullptr && is_aligned(problem.q, problem.q_stride) &&
         is_aligned(problem.k, problem.k_stride) && is_aligned(problem.v, problem.v_stride) &&
         is_aligned(problem.out, problem.out_stride) &&
         (paged ? page >= 16 && (page & (page - 1)) == 0 && problem.pages > 0 &&
                      problem.pages * page <= INT32_MAX
                : problem.context_lens == nullptr);
}

int log2_of(int64_t power) {
  int result = 0;
  while ((int64_t{1} << result) < power) ++result;
  return result;
}

Launch describe(const AttentionForward& problem, const Plan& plan) {
  Launch launch{};
  attention::Problem& p = launch.problem;
  p.q = static_cast<const uint16_t*>(problem.q);
  p.out = static_cast<uint16_t*>(problem.out);
  p.lse = problem.lse;
  p.cu_seqlens = problem.cu_seqlens;
  p.context_lens = problem.context_lens;
  p.page_table = problem.page_table;
  p.q_stride = problem.q_stride;
  p.out_stride = problem.out_stride;
  p.page_table_stride = problem.page_table_stride;
  const bool paged = problem.page_table != nullptr;
  p.page_shift = paged ? log2_of(problem.page_tokens) : 0;
  p.box_rows = paged && problem.page_tokens < kAttentionBlockKeys
                   ? static_cast<int>(problem.page_tokens)
                   : kAttentionBlockKeys;
  p.sequences = static_cast<int>(problem.sequences);
  p.query_heads = static_cast<int>(problem.query_heads);
  p.kv_heads = static_cast<int>(problem.kv_heads);
  p.group = static_cast<int>(group_of(problem));
  p.split_rows = static_cast<int>(plan.split_rows);
  p.scale = problem.scale;
  p.c = problem.scale * 1.4426950408889634f;
  p.partial_rows = static_cast<int>(plan.partial_rows);
  p.next_tile = static_cast<uint32_t*>(problem.workspace);
  p.partial_output = static_cast<float*>(problem.workspace) + kCounterBytes / sizeof(float);
  p.partial_state = reinterpret_cast<float2*>(p.partial_output + plan.partials * problem.head_dim);
  launch.tokens = problem.tokens;
  launch.max_segments = static_cast<int>(plan.segments);
  return launch;
}

// As the kernel that reads them wants it; where few rows are split, all sequences have few.
bool encode_keys(Launch& launch, const AttentionForward& problem) {
  const int64_t rows =
      problem.page_table != nullptr ? problem.pages * problem.page_tokens : problem.tokens;
  const auto encode = [&](CUtensorMap* map, const void* base, int64_t stride) {
    return attention::has_few_rows(launch)
               ? attention::encode_head_pieces(map, base, rows, problem.kv_heads, problem.head_dim,
                                               stride)
               : encode_bf16_heads(map, base, rows, problem.kv_heads, problem.head_dim, stride,
                                   launch.problem.box_rows);
  };
  return encode(&launch.key_map, problem.k, problem.k_stride) &&
         encode(&launch.value_map, problem.v, problem.v_stride);
}

}  // namespace

cudaError_t attention::count_processors(int* processors) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, device);
}

size_t attention_forward_workspace(const AttentionForward& problem) {
  const Plan plan = plan_schedules(problem);
  return kCounterBytes +
         static_cast<size_t>(plan.partials) *
             (static_cast<size_t>(problem.head_dim) * sizeof(float) + sizeof(float2));
}

cudaError_t attention_forward(const AttentionForward& problem, cudaStream_t stream) {
  if (problem.tokens == 0 || problem.sequences == 0) return cudaSuccess;
  if (!is_served(problem)) return cudaErrorInvalidValue;
  const size_t needed = attention_forward_workspace(problem);
  if (needed > problem.workspace_bytes || !is_aligned(problem.workspace, 0)) {
    return cudaErrorInvalidValue;
  }
  const Plan plan = plan_schedules(problem);
  Launch launch = describe(problem, plan);
  const int head_dim = static_cast<int>(problem.head_dim);
  if (!encode_keys(launch, problem)) return cudaErrorInvalidValue;
  cudaError_t error = cudaSuccess;
  if (error == cudaSuccess && plan.whole) {
    error = attention::launch_whole_rows(launch, head_dim, stream);
  }
  if (error == cudaSuccess && plan.split) {
    error = attention::launch_split_keys(launch, head_dim, stream);
  }
  return error;
}

}  // namespace slimexx::kernels
