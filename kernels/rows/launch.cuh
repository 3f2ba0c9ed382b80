// Launches the kernels of this family with programmatic dependent launch: each must begin with
// enter_kernel() or enter_layer_kernel().
#pragma once
#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "kernels/rows/chunk.cuh"

namespace slimexx::kernels::rows {

template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
                   Parameters... arguments) {
  return launch_early(kernel, {grid, threads}, stream, arguments...);
}

inline dim3 grid_of(int64_t blocks) { return dim3(static_cast<unsigned>(blocks)); }

}  // namespace slimexx::kernels::rows
