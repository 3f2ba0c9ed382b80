// Launch of the persistent gradient kernels: thread blocks run until there are no more items. One
// warp of the first warpgroup loads; two warpgroups compute.
#pragma once
#include <cstdint>

#include "kernels/attention_backward/problem.cuh"

namespace slimexx::kernels::attention_gradient {

inline constexpr int kThreads = 384;
inline constexpr uint32_t kComputingWarps = 8;

// `items`: upper bound on the number of work items.
template <class Kernel, class... Maps>
cudaError_t launch_kernel(Kernel* kernel, int bytes, int64_t items, int sm_count,
                          cudaStream_t stream, const Problem& problem, const Maps&... maps) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(items < sm_count ? items : sm_count), kThreads, bytes, stream>>>(
      problem, maps...);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels::attention_gradient
