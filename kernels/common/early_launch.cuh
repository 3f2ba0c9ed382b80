// Programmatic dependent launch: a kernel starts before the previous kernel of the stream has
// ended, which hides the launch latency.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <mutex>

#include "kernels/common/cluster.cuh"

namespace slimexx::kernels {

// The first statement of a kernel that is launched early: waits until the previous kernel has
// ended, and only then lets the next kernel start. So this kernel accesses no memory early, and
// when the next kernel starts, all kernels before this kernel have ended.
__device__ __forceinline__ void enter_kernel() {
  await_previous_grids();
  allow_next_grid();
}

// Like enter_kernel, but the next kernel may start at once, while this kernel and earlier kernels
// still run. The next kernel may read weights before its own wait, so the kernels that still run
// must not write weights. Use it inside a layer only, never directly after a kernel that writes
// weights.
__device__ __forceinline__ void enter_layer_kernel() {
  allow_next_grid();
  await_previous_grids();
}

struct LaunchShape {
  dim3 grid;
  int threads;
  size_t shared_bytes = 0;  // dynamic shared memory
  unsigned cluster = 1;     // thread blocks per cluster
};

// Raises a kernel's limit of dynamic shared memory to `bytes`; never lowers it. Ranks that are
// threads of one process may launch the same kernel with different sizes at the same time.
template <class... Parameters>
cudaError_t allow_shared_bytes(void (*kernel)(Parameters...), size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  cudaFuncAttributes now{};
  const cudaError_t error = cudaFuncGetAttributes(&now, kernel);
  if (error != cudaSuccess || now.maxDynamicSharedSizeBytes >= static_cast<int>(bytes)) {
    return error;
  }
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// The kernel must call await_previous_grids() before it accesses memory that earlier kernels of the
// stream read or write.
template <class... Parameters, class... Arguments>
cudaError_t launch_early(void (*kernel)(Parameters...), const LaunchShape& shape,
                         cudaStream_t stream, const Arguments&... arguments) {
  const cudaError_t error = allow_shared_bytes(kernel, shape.shared_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace slimexx::kernels
