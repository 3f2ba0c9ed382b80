// Merging the partial results of column tiles (kernels/vocabulary/tile_sum.cuh), for the kernels of
// this family and for a product that leaves such partial results behind.
#pragma once
#include "kernels/vocabulary/tile_sum.cuh"

namespace slimexx::kernels::vocabulary {

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

}  // namespace slimexx::kernels::vocabulary
