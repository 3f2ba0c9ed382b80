// Tiles of rows in memory, and merging the partial results of tiles (tile_sum.cuh): for the kernels
// of this family, and the merge for a product that leaves such partial results behind.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/common/early_launch.cuh"
#include "kernels/vocabulary/tile_sum.cuh"

namespace slimexx::kernels::vocabulary {

// Kernels of this family are launched early, so each must begin with enter_kernel().
struct GridShape {
  int64_t blocks;
  int threads;
  size_t shared_bytes = 0;
  unsigned cluster = 1;
};

// cudaErrorInvalidConfiguration where the grid would be too large.
template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), const GridShape& shape, cudaStream_t stream,
                   Parameters... arguments) {
  if (shape.blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  return launch_early(
      kernel,
      {dim3(static_cast<unsigned>(shape.blocks)), shape.threads, shape.shared_bytes, shape.cluster},
      stream, arguments...);
}

// The results of merging a row's tiles; all [rows], each null where not wanted.
struct MergedRows {
  float* lse = nullptr;
  float* entropies = nullptr;            // needs TilePartials::weighted
  float* log_probs = nullptr;            // target_logits[r] - lse
  const float* target_logits = nullptr;  // z of the target, after the temperature
  // The log-normalisers of the rows that these columns are a leaf of: `entropies` are what the leaf
  // adds to those of the rows (leaf_entropy). Null: the columns are the whole rows.
  const float* whole_lse = nullptr;
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
