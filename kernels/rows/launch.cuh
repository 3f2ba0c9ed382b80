// How the kernels of this family start: before the previous kernel of the stream has ended, which
// hides the launch. Each begins with enter_kernel(), which waits for that kernel's end; only then
// is the next kernel let in. So nothing is read or written early, and whoever overlaps with one of
// these kernels finds everything before it complete.
#pragma once
#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/common/cluster.cuh"
#include "kernels/rows/chunk.cuh"

namespace slimexx::kernels::rows {

__device__ __forceinline__ void enter_kernel() {
  await_previous_grids();
  allow_next_grid();
}

template <class... Parameters>
cudaError_t launch_with_shared(int shared_bytes, void (*kernel)(Parameters...), dim3 grid,
                               int threads, cudaStream_t stream, Parameters... arguments) {
  if (shared_bytes > 0) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
                   Parameters... arguments) {
  return launch_with_shared(0, kernel, grid, threads, stream, arguments...);
}

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether rows at p, `stride` elements apart, start at 16 bytes each. A null pointer does.
inline bool is_aligned(const void* p, int64_t stride = 0) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % kChunk == 0;
}

inline dim3 grid_of(int64_t blocks) { return dim3(static_cast<unsigned>(blocks)); }

}  // namespace slimexx::kernels::rows
