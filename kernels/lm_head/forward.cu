// The product of the hidden states with the vocabulary, every tile of it summed where it stands:
// nothing of the logits but the targets' leaves the registers.
#include "kernels/lm_head/launch.cuh"
#include "kernels/lm_head/products.h"
#include "kernels/lm_head/temperature.cuh"
#include "kernels/vocabulary/launch.cuh"

namespace slimexx::kernels::lm_head {
namespace {

using vocabulary::kInfinity;
using vocabulary::kLaneValues;
using vocabulary::kTileColumns;
using vocabulary::tile_column;

// Four lanes share a row of the accumulator just as they share a tile: value k of row half i.
__host__ __device__ constexpr int accumulator_index(int k, int i) {
  return 4 * (k / 2) + 2 * i + k % 2;
}

template <bool kWeighted, bool kDivide>
struct SumTiles {
  vocabulary::TilePartials partials;
  const int32_t* targets;
  float* target_logits;  // [rows], z; NaN where the target is no column
  Temperature temperature;

  template <class Tile>
  __device__ __forceinline__ void finish(const GemmProblem& p, float (&acc)[Tile::kColumns / 2],
                                         int row, int column, uint8_t*, int) const {
    static_assert(!Tile::kSwap && Tile::kColumns == kTileColumns);
    const int q = threadIdx.x % 4;
    const int first_row = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const int at_target[2] = {find_target(p, first_row, column),
                              find_target(p, first_row + 8, column)};
    if constexpr (kDivide) divide_logits(acc, temperature);
    if (column + kTileColumns > p.features) {
#pragma unroll
      for (int k = 0; k < kLaneValues; ++k) {
        if (column + tile_column(q, k) < p.features) continue;
        acc[accumulator_index(k, 0)] = -kInfinity;
        acc[accumulator_index(k, 1)] = -kInfinity;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const vocabulary::TileSum sum = vocabulary::sum_tile<kWeighted>(
          [&acc, i](int k) { return acc[accumulator_index(k, i)]; });
      if (q == 0) store_sum(p, sum, first_row + 8 * i, column);
    }
    // Few warps meet a target.
    if (__any_sync(0xffffffffu, at_target[0] >= 0 || at_target[1] >= 0)) {
      keep_targets(acc, at_target, first_row);
    }
  }

 private:
  // The target's column in the tile if this lane owns it, else -1. The first tile also marks the
  // rows whose target no tile owns.
  __device__ __forceinline__ int find_target(const GemmProblem& p, int row, int column) const {
    if (row >= p.tokens) return -1;
    const int target = targets[row];
    if (target < 0 || target >= p.features) {
      if (column == 0 && threadIdx.x % 4 == 0) target_logits[row] = __int_as_float(0x7fffffff);
      return -1;
    }
    const int within = target - column;
    const bool owned = within >= 0 && within < kTileColumns && within / 2 % 4 == threadIdx.x % 4;
    return owned ? within : -1;
  }

  __device__ __forceinline__ void store_sum(const GemmProblem& p, const vocabulary::TileSum& sum,
                                            int row, int column) const {
    if (row >= p.tokens) return;
    const int64_t at = row * partials.tiles + column / kTileColumns;
    partials.maximum[at] = sum.maximum;
    partials.sum[at] = sum.sum;
    if constexpr (kWeighted) partials.weighted[at] = sum.weighted;
  }

  template <int kCount>
  __device__ __forceinline__ void keep_targets(const float (&acc)[kCount], const int (&at)[2],
                                               int first_row) const {
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float z = 0.0f;
#pragma unroll
      for (int k = 0; k < kLaneValues; ++k) {
        if (tile_column(q, k) == at[i]) z = acc[accumulator_index(k, i)];
      }
      if (at[i] >= 0) target_logits[first_row + 8 * i] = z;
    }
  }
};

template <bool kWeighted, bool kDivide>
const char* launch_sums(const LmHeadForwardArgs& a, const vocabulary::TilePartials& partials,
                        float* target_logits, int sm_count, cudaStream_t stream) {
  const SumTiles<kWeighted, kDivide> epilogue = {
      partials, a.targets, target_logits, {a.temperature, 1.0f / a.temperature}};
  return launch_product(describe_product(a), sm_count, stream, epilogue);
}

}  // namespace

size_t sums_workspace(int64_t rows, int64_t columns, bool entropies) {
  return vocabulary::partials_bytes(rows, columns, entropies) +
         static_cast<size_t>(rows) * sizeof(float);
}

const char* launch_forward(const LmHeadForwardArgs& a, int sm_count, cudaStream_t stream) {
  const bool weighted = a.entropies != nullptr;
  const auto partials = vocabulary::place_partials(a.workspace, a.rows, a.vocabulary, weighted);
  auto* const target_logits = reinterpret_cast<float*>(
      static_cast<char*>(a.workspace) + vocabulary::partials_bytes(a.rows, a.vocabulary, weighted));
  auto launch = weighted ? launch_sums<true, false> : launch_sums<false, false>;
  if (a.temperature != 1.0f) launch = weighted ? launch_sums<true, true> : launch_sums<false, true>;
  if (const char* fault = launch(a, partials, target_logits, sm_count, stream)) return fault;
  const vocabulary::MergedRows merged = {a.lse, a.entropies, a.log_probs, target_logits};
  const cudaError_t error = vocabulary::launch_merge(merged, partials, a.rows, stream);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels::lm_head
