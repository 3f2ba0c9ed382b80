// Launchers of the passes that compute partial results for tiles of logits in memory, and of their
// merge (tile_sum.cuh). The LM head's product also writes such partial results and uses the merge.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/common/early_launch.cuh"
#include "kernels/vocabulary/tile_sum.cuh"

namespace slimexx::kernels::vocabulary {

// Kernels of this family use programmatic dependent launch, so each must begin with enter_kernel().
struct GridShape {
  int64_t blocks;
  int threads;
  size_t shared_bytes = 0;
  unsigned cluster = 1;
};

// Returns cudaErrorInvalidConfiguration if the grid is too large.
template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), const GridShape& shape, cudaStream_t stream,
                   Parameters... arguments) {
  if (shape.blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  return launch_early(
      kernel,
      {dim3(static_cast<unsigned>(shape.blocks)), shape.threads, shape.shared_bytes, shape.cluster},
      stream, arguments...);
}

// The results of merging a row's tiles: arrays [rows], null if not needed.
struct MergedRows {
  float* lse = nullptr;
  float* entropies = nullptr;            // needs TilePartials::weighted
  float* log_probs = nullptr;            // target_logits[r] - lse
  const float* target_logits = nullptr;  // the target's logit / temperature
  // If the columns are one leaf of the rows: the log-normalisers of the whole rows. `entropies` are
  // then the leaf's contributions (leaf_entropy). Null: the columns are the whole rows.
  const float* whole_lse = nullptr;
};

// One warp per row. Nothing is allocated; returns cudaGetLastError().
cudaError_t launch_merge(const MergedRows& out, const TilePartials& partials, int64_t rows,
                         cudaStream_t stream);

// One temperature per row (element stride `stride`), or `value` for all rows if by_row is null.
struct RowTemperatures {
  const float* by_row = nullptr;
  int64_t stride = 1;
  float value = 1.0f;
  __device__ float of(int64_t row) const {
    return by_row != nullptr ? by_row[row * stride] : value;
  }
};

// Partial results of all tiles of logits / temperature. With `write` the quotients overwrite the
// logits of rows whose temperature is not 1. Returns cudaErrorInvalidValue if the row stride is not
// a multiple of 4 floats or the logits are not aligned to 16 bytes.
cudaError_t launch_tile_pass(const TilePartials& partials, const LogitRows& rows,
                             const RowTemperatures& temperatures, bool write, cudaStream_t stream);

// launch_tile_pass for many tiles: every warp streams its share of the tiles through shared memory.
cudaError_t launch_streamed_tile_pass(const TilePartials& partials, const LogitRows& rows,
                                      const RowTemperatures& temperatures, bool write,
                                      cudaStream_t stream);

// Places the arrays of partial results in a workspace of partials_bytes().
TilePartials place_partials(void* workspace, int64_t rows, int64_t columns, bool weighted);
size_t partials_bytes(int64_t rows, int64_t columns, bool weighted);

}  // namespace slimexx::kernels::vocabulary
