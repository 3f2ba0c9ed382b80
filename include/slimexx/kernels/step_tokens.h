// Copies sampled tokens to the next step and to the host, and prepares draft passes. Pointers are
// device pointers, except the host's in copy_samples_to_host. Nothing is allocated, nothing
// synchronises; each function queues its kernel on `stream` and returns cudaGetLastError().
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/draft_rows.h"

namespace slimexx::kernels {

// In place over tokens [count]: an id below 0 becomes sampled[~id], or 0 if that is -1.
cudaError_t fill_sampled_tokens(int32_t* tokens, int64_t count, const int32_t* sampled,
                                cudaStream_t stream);
// Copies tokens [count] and log_probs [count] to page-locked host memory.
cudaError_t copy_samples_to_host(int32_t* host_tokens, float* host_log_probs, const int32_t* tokens,
                                 const float* log_probs, int64_t count, cudaStream_t stream);

// Writes the inputs of the next draft pass (advance_draft_row for all rows).
cudaError_t advance_drafts(const DraftRows& rows, cudaStream_t stream);

}  // namespace slimexx::kernels
