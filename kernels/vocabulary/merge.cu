// Merges the partial results of each row's tiles (4.75 KB for a row of 151936 columns).
#include <cuda_runtime.h>

#include "kernels/vocabulary/launch.cuh"

namespace slimexx::kernels::vocabulary {
namespace {

constexpr int kRowsPerBlock = 4;

template <bool kWeighted>
__global__ void __launch_bounds__(kRowsPerBlock * 32)
    merge_rows(MergedRows out, TilePartials partials, int64_t rows) {
  enter_kernel();
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / 32;
  if (row >= rows) return;
  const int64_t first = row * partials.tiles;
  const TileSum merged = merge_tiles<kWeighted>(partials.maximum + first, partials.sum + first,
                                                kWeighted ? partials.weighted + first : nullptr,
                                                static_cast<int>(partials.tiles));
  if (threadIdx.x % 32 != 0) return;
  const float lse = row_lse(merged);
  if (out.lse != nullptr) out.lse[row] = lse;
  if (out.log_probs != nullptr) out.log_probs[row] = __fadd_rn(out.target_logits[row], -lse);
  if constexpr (!kWeighted) return;
  const float entropy = row_entropy(merged);
  out.entropies[row] =
      out.whole_lse == nullptr ? entropy : leaf_entropy(entropy, lse, out.whole_lse[row]);
}

}  // namespace

cudaError_t launch_merge(const MergedRows& out, const TilePartials& partials, int64_t rows,
                         cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const auto kernel = out.entropies != nullptr ? merge_rows<true> : merge_rows<false>;
  return launch(kernel, {(rows + kRowsPerBlock - 1) / kRowsPerBlock, kRowsPerBlock * 32}, stream,
                out, partials, rows);
}

}  // namespace slimexx::kernels::vocabulary
