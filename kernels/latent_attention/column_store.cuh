// Stores the results of a walk with swapped operands (column_form.cuh).
#pragma once
#include "kernels/latent_attention/column_form.cuh"

namespace slimexx::kernels::latent_attention {

// Lanes 4 apart swap values, so that in each group of 8 rows a lane holds neighbouring columns of
// one row. Lanes with bit 2 set get the odd rows.
__device__ __forceinline__ bool stores_odd_rows() { return threadIdx.x % 8 >= 4; }

// Finds the offsets in the output, in elements, of the rows that the thread stores. It is separate
// from store_columns so that a caller can do these divisions before the last product.
template <int kRows>
__device__ __forceinline__ void find_output_rows(const Problem& problem, const Item& item,
                                                 int64_t (&begins)[kRows / 8]) {
  const attention::Problem& p = problem.attention;
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    const int row = item.row + 8 * g + threadIdx.x % 4 * 2 + (stores_odd_rows() ? 1 : 0);
    const int token = row / p.group, head = row - token * p.group;
    begins[g] = token * p.out_stride + head * problem.value_dim;
  }
}

// Stores a warpgroup's kTiles x 64 columns of kRows rows, starting at `first_column`. Rows whose
// keys all lie in the first segment get outputs, other rows partial results; rows without keys in
// the segment store nothing. `tells_state`: this warpgroup also stores the row statistics.
// `begins`: from find_output_rows.
template <int kRows, int kTiles>
__device__ __forceinline__ void store_columns(const Problem& problem, const Item& item,
                                              const float (&output)[kTiles][kRows / 2],
                                              const int (&positions)[kRows / 4],
                                              const float (&maxima)[kRows / 4],
                                              const float (&sums)[kRows / 4],
                                              const int64_t (&begins)[kRows / 8], int first_column,
                                              bool tells_state) {
  const attention::Problem& p = problem.attention;
  const int segment = item.first_block / kSegmentBlocks, lane = threadIdx.x % 32;
  const bool odd = stores_odd_rows();
  tells_state = tells_state && threadIdx.x % 128 < 8;
  const int column = first_column + static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 8 * 2;
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    float2 pairs[2 * kTiles];
#pragma unroll
    for (int x = 0; x < 2 * kTiles; ++x) {
      const float even_row = output[x / 2][4 * g + x % 2 * 2];
      const float odd_row = output[x / 2][4 * g + x % 2 * 2 + 1];
      const float other = __shfl_xor_sync(0xffffffffu, odd ? even_row : odd_row, 4);
      pairs[x] = odd ? make_float2(other, odd_row) : make_float2(even_row, other);
    }
    const int position = odd ? positions[2 * g + 1] : positions[2 * g];
    const float maximum = odd ? maxima[2 * g + 1] : maxima[2 * g];
    const float sum = odd ? sums[2 * g + 1] : sums[2 * g];
    if (position < segment * kLatentSegmentKeys) continue;
    const int row = item.row + 8 * g + lane % 4 * 2 + (odd ? 1 : 0);
    if (position >= kLatentSegmentKeys) {
      const int64_t at = segment * p.partial_rows + row;
      if (tells_state) p.partial_state[at] = make_float2(maximum, sum);
#pragma unroll
      for (int x = 0; x < 2 * kTiles; ++x) {
        *reinterpret_cast<float2*>(p.partial_output + at * kValues + column + x / 2 * 64 +
                                   x % 2 * 8) = pairs[x];
      }
      continue;
    }
    if (p.lse != nullptr && tells_state) {
      p.lse[row] = attention::log_sum_exp(maximum, sum, p.scale);
    }
    const float inverse = __frcp_rn(sum);
    uint16_t* out = p.out + begins[g];
#pragma unroll
    for (int x = 0; x < 2 * kTiles; ++x) {
      const int own = column + x / 2 * 64 + x % 2 * 8;
      if (own < problem.value_dim) {
        *reinterpret_cast<uint32_t*>(out + own) = finish_pair(pairs[x].x, pairs[x].y, inverse);
      }
    }
  }
}

}  // namespace slimexx::kernels::latent_attention
