// Tiles of rows in memory, and merging the partial results of tiles (tile_sum.cuh): for the kernels
// of this family, and the merge for a product that leaves such partial results behind.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/common/cluster.cuh"
#include "kernels/vocabulary/tile_sum.cuh"

namespace slimexx::kernels::vocabulary {

// Kernels of this family start before the previous kernel of the stream has ended, wait for its end
// first of all, and only then let the next one in: who overlaps finds everything before complete.
__device__ __forceinline__ void enter_kernel() {
  await_previous_grids();
  allow_next_grid();
}

struct LaunchShape {
  int64_t blocks;
  int threads;
  size_t shared_bytes = 0;
  unsigned cluster = 1;
};

// cudaErrorInvalidConfiguration where the grid would be too large.
template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   Parameters... arguments) {
  if (shape.blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  if (shape.shared_bytes > 0) {
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared_bytes))) {
      return error;
    }
  }
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// What a row is merged into; all [rows], each null where not wanted.
struct MergedRows {
  float* lse = nullptr;
  float* entropies = nullptr;            // needs TilePartials::weighted
  float* log_probs = nullptr;            // target_logits[r] - lse
  const float* target_logits = nullptr;  // z of the target, after the temperature
};

// One warp a row. Nothing is allocated; returns cudaGetLastError().
cudaError_t launch_merge(const MergedRows& out, const TilePartials& partials, int64_t rows,
                         cudaStream_t stream);

// A temperature a row (element stride `stride`), or `value` for all where by_row is null.
struct RowTemperatures {
  const float* by_row = nullptr;
  int64_t stride = 1;
  float value = 1.0f;
  __device__ float of(int64_t row) const {
    return by_row != nullptr ? by_row[row * stride] : value;
  }
};

// Partial results of all tiles of logits / temperature; with `write` the quotients replace the
// logits of rows whose temperature is not 1. cudaErrorInvalidValue: stride or alignment.
cudaError_t launch_tile_pass(const TilePartials& partials, const LogitRows& rows,
                             const RowTemperatures& temperatures, bool write, cudaStream_t stream);

// The same for many tiles: every warp streams through its share by bulk copies.
cudaError_t launch_streamed_tile_pass(const TilePartials& partials, const LogitRows& rows,
                                      const RowTemperatures& temperatures, bool write,
                                      cudaStream_t stream);

// The partial results' arrays one after the other in a workspace of partials_bytes().
TilePartials place_partials(void* workspace, int64_t rows, int64_t columns, bool weighted);
size_t partials_bytes(int64_t rows, int64_t columns, bool weighted);

}  // namespace slimexx::kernels::vocabulary
