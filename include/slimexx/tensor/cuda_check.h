// Every result of the CUDA runtime goes through SLX_CUDA. Only for files that a build with CUDA
// compiles.
#pragma once
#include <cuda_runtime_api.h>

namespace slimexx::tensor {

// Throws Error(kRun) naming the call, the current device and CUDA's text; out of memory is
// Error(kEnvironment) and lists what holds memory.
void check_cuda(cudaError_t status, const char* call);

}  // namespace slimexx::tensor

#define SLX_CUDA(call) ::slimexx::tensor::check_cuda((call), #call)
