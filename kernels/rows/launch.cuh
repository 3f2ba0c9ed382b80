// How the kernels of this family start: early, each with enter_kernel() first of all.
#pragma once
#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/common/early_launch.cuh"
#include "kernels/rows/chunk.cuh"

namespace slimexx::kernels::rows {

template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
                   Parameters... arguments) {
  return launch_early(kernel, {grid, threads}, stream, arguments...);
}

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether rows at p, `stride` elements apart, start at 16 bytes each. A null pointer does.
inline bool is_aligned(const void* p, int64_t stride = 0) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % kChunk == 0;
}

inline dim3 grid_of(int64_t blocks) { return dim3(static_cast<unsigned>(blocks)); }

}  // namespace slimexx::kernels::rows
