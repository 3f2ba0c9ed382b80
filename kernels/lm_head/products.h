// Launches of the forward, of the backward that recomputes logits, and of the backward from kept
// logits. The caller has checked the arguments. The result is null or an error message.
#pragma once
#include <cstdint>

#include "slimexx/kernels/lm_head.h"

namespace slimexx::kernels::lm_head {

// The temperatures for which the bounds at divide_ordinary (temperature.cuh) hold.
constexpr float kLeastTemperature = 0x1p-10f;
constexpr float kLargestTemperature = 0x1p10f;

// Workspace of launch_forward in bytes: the partial results of all tiles, and the targets' logits.
size_t sums_workspace(int64_t rows, int64_t columns, bool entropies);
const char* launch_forward(const LmHeadForwardArgs& args, int sm_count, cudaStream_t stream);

const char* launch_backward(const LmHeadBackwardArgs& args, int sm_count, cudaStream_t stream);
const char* launch_kept_backward(const LmHeadKeptArgs& args, int64_t dlogits_stride,
                                 cudaStream_t stream);

}  // namespace slimexx::kernels::lm_head
