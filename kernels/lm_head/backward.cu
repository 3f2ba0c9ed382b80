// Recomputes the logits (the product of hidden states and vocabulary weights) and stores their
// gradient, which the epilogue forms in the accumulators.
#include "kernels/lm_head/gradient.cuh"
#include "kernels/lm_head/launch.cuh"
#include "kernels/lm_head/products.h"

namespace slimexx::kernels::lm_head {
namespace {

template <bool kDivide>
struct StoreGradient {
  GradientRows gradients;
  Temperature temperature;

  template <class Tile>
  __device__ __forceinline__ void finish(const GemmProblem& p, float (&acc)[Tile::kColumns / 2],
                                         int row, int column, int, uint8_t* staging,
                                         int group) const {
    static_assert(!Tile::kSwap);
    const int first_row = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const GradientRow rows[2] = {load_row(p, first_row), load_row(p, first_row + 8)};
    if constexpr (kDivide) {
      divide_logits(acc, is_ordinary(rows[0]) && is_ordinary(rows[1]), temperature);
    }
#pragma unroll
    for (int r = 0; r < Tile::kColumns / 2; ++r) acc[r] = rows[r / 2 % 2].gradient(acc[r]);
    add_targets(acc, column, rows);
    if constexpr (kDivide) {
#pragma unroll
      for (int r = 0; r < Tile::kColumns / 2; ++r) {
        acc[r] = __fmul_rn(acc[r], temperature.reciprocal);
      }
    }
    store_plain(p, acc, staging, 1 + group, row, column);
  }

 private:
  __device__ __forceinline__ GradientRow load_row(const GemmProblem& p, int row) const {
    return row < p.tokens ? gradients.load(row) : GradientRow{};
  }

  // Few warps have a target in their columns; the others return early.
  template <int kCount>
  __device__ __forceinline__ void add_targets(float (&acc)[kCount], int column,
                                              const GradientRow (&rows)[2]) const {
    const auto inside = [column](int target) {
      return target >= column && target - column < 2 * kCount;
    };
    if (!inside(rows[0].target) && !inside(rows[1].target)) return;
    const int lane_column = column + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      const GradientRow& row = rows[r / 2 % 2];
      if (lane_column + r / 4 * 8 + r % 2 == row.target) acc[r] = __fadd_rn(acc[r], row.dlp);
    }
  }
};

template <bool kDivide>
const char* launch_gradient(const LmHeadBackwardArgs& a, int sm_count, cudaStream_t stream) {
  const LmHeadGradient& g = a.gradient;
  GemmArgs product = describe_product(a.product);
  product.y = g.dlogits;
  product.y_stride = g.dlogits_stride;
  product.output = GemmOutput::kBf16;
  const StoreGradient<kDivide> epilogue = {list_gradient_rows(g),
                                           {g.temperature, 1.0f / g.temperature}};
  return launch_product(product, sm_count, stream, epilogue);
}

}  // namespace

const char* launch_backward(const LmHeadBackwardArgs& a, int sm_count, cudaStream_t stream) {
  return a.gradient.temperature == 1.0f ? launch_gradient<false>(a, sm_count, stream)
                                        : launch_gradient<true>(a, sm_count, stream);
}

}  // namespace slimexx::kernels::lm_head
