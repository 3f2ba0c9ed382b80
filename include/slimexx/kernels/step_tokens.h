// Copies sampled tokens to the next step and to the host, and makes rows of drafts. Pointers are
// device pointers unless said otherwise. Nothing is allocated, nothing synchronises; each function
// queues its kernel on `stream` and returns cudaGetLastError().
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/draft_rows.h"

namespace slimexx::kernels {

// In place over tokens [count]: an id below 0 becomes sampled[~id], or 0 where that is -1.
cudaError_t fill_sampled_tokens(int32_t* tokens, int64_t count, const int32_t* sampled,
                                cudaStream_t stream);
// Copies tokens [count] and log_probs [count] to page-locked memory of the host.
cudaError_t copy_samples_to_host(int32_t* host_tokens, float* host_log_probs, const int32_t* tokens,
                                 const float* log_probs, int64_t count, cudaStream_t stream);

// The rows of the next pass of drafts. Memory of the device.
cudaError_t advance_drafts(const DraftRows& rows, cudaStream_t stream);

}  // namespace slimexx::kernels
