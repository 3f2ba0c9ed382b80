// Wrap every CUDA runtime call in SLX_CUDA. Only for files compiled in builds with CUDA.
#pragma once
#include <cuda_runtime_api.h>

namespace slimexx::tensor {

// Throws Error(kRun) with the call, the current device and CUDA's message; out of memory is
// Error(kEnvironment) and lists the live allocations.
void check_cuda(cudaError_t status, const char* call);

}  // namespace slimexx::tensor

#define SLX_CUDA(call) ::slimexx::tensor::check_cuda((call), #call)
