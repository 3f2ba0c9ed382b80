// Copies sampled tokens to the next step and to the host: fills in the tokens that the host did not
// know when it staged the step, writes tokens and their log-probs to host memory, and makes the
// rows of the next draft pass.
#include "slimexx/kernels/step_tokens.h"

#include "kernels/vocabulary/launch.cuh"

namespace slimexx::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    fill_sampled_tokens_kernel(int32_t* tokens, int64_t count, const int32_t* sampled) {
  enter_kernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int32_t token = tokens[i];
  if (token < 0) tokens[i] = max(sampled[~token], 0);
}

__global__ void __launch_bounds__(kThreads)
    copy_samples_kernel(int32_t* host_tokens, float* host_log_probs, const int32_t* tokens,
                        const float* log_probs, int64_t count) {
  enter_kernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  host_tokens[i] = tokens[i];
  host_log_probs[i] = log_probs[i];
}

__global__ void __launch_bounds__(kThreads) advance_drafts_kernel(DraftRows rows) {
  enter_kernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < rows.count) advance_draft_row(rows, static_cast<int32_t>(i));
}

vocabulary::GridShape shape_for(int64_t count) {
  return {(count + kThreads - 1) / kThreads, kThreads};
}

}  // namespace

cudaError_t fill_sampled_tokens(int32_t* tokens, int64_t count, const int32_t* sampled,
                                cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return vocabulary::launch(fill_sampled_tokens_kernel, shape_for(count), stream, tokens, count,
                            sampled);
}

cudaError_t copy_samples_to_host(int32_t* host_tokens, float* host_log_probs, const int32_t* tokens,
                                 const float* log_probs, int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return vocabulary::launch(copy_samples_kernel, shape_for(count), stream, host_tokens,
                            host_log_probs, tokens, log_probs, count);
}

cudaError_t advance_drafts(const DraftRows& rows, cudaStream_t stream) {
  if (rows.count == 0) return cudaSuccess;
  return vocabulary::launch(advance_drafts_kernel, shape_for(rows.count), stream, rows);
}

}  // namespace slimexx::kernels
