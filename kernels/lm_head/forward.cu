// The product of hidden states and vocabulary weights. The epilogue sums every tile of logits in
// the accumulators. Only the targets' logits are stored, unless the caller asks to keep all logits.
#include "kernels/lm_head/keep.cuh"
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

// The accumulator index of value k of row half i. Four lanes share a row of the accumulator as they
// share a tile (tile_sum.cuh).
__host__ __device__ constexpr int accumulator_index(int k, int i) {
  return 4 * (k / 2) + 2 * i + k % 2;
}

// The sums of a lane's two rows, each in the order of vocabulary::sum_tile. The rows are
// interleaved: a single chain of additions would be limited by its latency, not by the
// exponentials.
struct TwoSums {
  float shift[2], sum[2], weighted[2];

  template <bool kWeighted, class Divide>
  __device__ __forceinline__ void add_tile(const float (&acc)[2 * kLaneValues], Divide divide) {
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] = weighted[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < kLaneValues; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float z = divide(acc[accumulator_index(k, i)]);
        vocabulary::add_value<kWeighted>(z, shift[i], sum[i], weighted[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = vocabulary::join_sum(sum[i]);
      if constexpr (kWeighted) weighted[i] = vocabulary::join_sum(weighted[i]);
    }
  }
};

__device__ __forceinline__ void find_maxima(const float (&acc)[2 * kLaneValues],
                                            float (&maxima)[2]) {
  float m[4] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
#pragma unroll
  for (int r = 0; r < 2 * kLaneValues; ++r) m[r % 4] = fmaxf(m[r % 4], acc[r]);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    maxima[i] = vocabulary::join_maximum(fmaxf(m[2 * i], m[2 * i + 1]));
  }
}

template <bool kWeighted, bool kDivide>
struct SumTiles {
  vocabulary::TilePartials partials;
  const int32_t* targets;
  float* target_logits;  // [rows], logit / temperature; NaN if the target is not a column
  Temperature temperature;

  template <class Tile>
  __device__ __forceinline__ void finish(const GemmProblem& p, float (&acc)[Tile::kColumns / 2],
                                         int row, int column, int, uint8_t*, int) const {
    static_assert(!Tile::kSwap && Tile::kColumns == kTileColumns);
    const int first_row = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    // Load early to hide the latency.
    const int target[2] = {first_row < p.tokens ? targets[first_row] : 0,
                           first_row + 8 < p.tokens ? targets[first_row + 8] : 0};
    if (p.y_base != nullptr) keep_logits(p, acc, first_row, column);
    if (column + kTileColumns > p.features) hide_absent(acc, p.features - column);
    float maxima[2];
    find_maxima(acc, maxima);
    TwoSums sums;
    sum_rows(acc, maxima, sums);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (first_row + 8 * i >= p.tokens) continue;
      const int64_t at = (first_row + 8 * i) * partials.tiles + column / kTileColumns;
      if (threadIdx.x % 4 != 0) continue;
      partials.maximum[at] = maxima[i];
      partials.sum[at] = sums.sum[i];
      if constexpr (kWeighted) partials.weighted[at] = sums.weighted[i];
    }
    keep_targets(p, acc, target, first_row, column);
  }

 private:
  __device__ __forceinline__ void hide_absent(float (&acc)[2 * kLaneValues], int width) const {
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < kLaneValues; ++k) {
      if (tile_column(q, k) < width) continue;
      acc[accumulator_index(k, 0)] = acc[accumulator_index(k, 1)] = -kInfinity;
    }
  }

  // Division keeps the order, so the largest quotient is that of the largest logit. The sums use
  // divide_ordinary first, and are redone with divide if a lane's operands are not ordinary.
  __device__ __forceinline__ void sum_rows(const float (&acc)[2 * kLaneValues], float (&maxima)[2],
                                           TwoSums& sums) const {
    if constexpr (kDivide) {
      for (float& maximum : maxima) maximum = divide(maximum, temperature);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) sums.shift[i] = vocabulary::shift_of(maxima[i]);
    if constexpr (!kDivide) {
      sums.add_tile<kWeighted>(acc, [](float x) { return x; });
    } else {
      const Temperature t = temperature;
      sums.add_tile<kWeighted>(acc, [t](float x) { return divide_ordinary(x, t); });
      bool ordinary = true;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ordinary &= fabsf(sums.shift[i]) >= kLeastShift && !isnan(sums.sum[i]);
      }
      if (__any_sync(0xffffffffu, !ordinary)) {
        sums.add_tile<kWeighted>(acc, [t](float x) { return divide(x, t); });
      }
    }
  }

  // Stores the logits of targets in this tile. The first tile stores NaN for rows whose target is
  // not a column.
  __device__ __forceinline__ void keep_targets(const GemmProblem& p,
                                               const float (&acc)[2 * kLaneValues],
                                               const int (&target)[2], int first_row,
                                               int column) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      const bool nowhere = target[i] < 0 || target[i] >= p.features;
      if (nowhere && column == 0 && row < p.tokens) target_logits[row] = __int_as_float(0x7fffffff);
      const int within = target[i] - column;
      const int q = threadIdx.x % 4;
      const bool here = !nowhere && within >= 0 && within < kTileColumns && within / 2 % 4 == q;
      if (!here || row >= p.tokens) continue;
      float x = 0.0f;
#pragma unroll
      for (int k = 0; k < kLaneValues; ++k) {
        if (tile_column(q, k) == within) x = acc[accumulator_index(k, i)];
      }
      target_logits[row] = kDivide ? divide(x, temperature) : x;
    }
  }
};

template <bool kWeighted, bool kDivide>
const char* launch_sums(const LmHeadForwardArgs& a, const vocabulary::TilePartials& partials,
                        float* target_logits, int sm_count, cudaStream_t stream) {
  const SumTiles<kWeighted, kDivide> epilogue = {
      partials, a.targets, target_logits, {a.temperature, 1.0f / a.temperature}};
  GemmArgs product = describe_product(a.product);
  product.y = a.logits;
  return launch_product(product, sm_count, stream, epilogue);
}

}  // namespace

size_t sums_workspace(int64_t rows, int64_t columns, bool entropies) {
  return vocabulary::partials_bytes(rows, columns, entropies) +
         static_cast<size_t>(rows) * sizeof(float);
}

const char* launch_forward(const LmHeadForwardArgs& a, int sm_count, cudaStream_t stream) {
  const int64_t rows = a.product.rows, columns = a.product.vocabulary;
  const bool weighted = a.entropies != nullptr;
  const auto partials = vocabulary::place_partials(a.workspace, rows, columns, weighted);
  auto* const target_logits = reinterpret_cast<float*>(
      static_cast<char*>(a.workspace) + vocabulary::partials_bytes(rows, columns, weighted));
  auto launch = weighted ? launch_sums<true, false> : launch_sums<false, false>;
  if (a.temperature != 1.0f) launch = weighted ? launch_sums<true, true> : launch_sums<false, true>;
  if (const char* fault = launch(a, partials, target_logits, sm_count, stream)) return fault;
  const vocabulary::MergedRows merged = {a.lse, a.entropies, a.log_probs, target_logits};
  const cudaError_t error = vocabulary::launch_merge(merged, partials, rows, stream);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels::lm_head
