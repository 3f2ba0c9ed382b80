// The token losses of token_loss.h in one kernel; the pointers of its arguments are device
// pointers.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/policy_loss_args.h"

namespace slimexx::kernels {

size_t policy_loss_workspace(int64_t rows, int64_t sequences);
// Sums run in a fixed order: the same bits every run.
cudaError_t policy_loss(const PolicyLossArgs& args, void* workspace, cudaStream_t stream);

}  // namespace slimexx::kernels
