// The steps of a norm on the part of a row that a thread holds.
#pragma once
#include "kernels/rows/row_sum.cuh"

namespace slimexx::kernels::rows {

template <int kChunks, bool kVector>
__device__ __forceinline__ void store_normalised(Bf16* y, const RowPart<kChunks>& x,
                                                 const RowPart<kChunks>& w, float r, int width) {
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin >= width) break;
    float value[kChunk], weight[kChunk];
    unpack(value, x.chunk[j]);
    unpack(weight, w.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) value[i] = __fmul_rn(weight[i], __fmul_rn(value[i], r));
    store_chunk<kVector>(y + begin, pack(value), width - begin);
  }
}

// x + branch, or x + branch_norm * (branch * r), rounded.
template <int kChunks, bool kNorm>
__device__ __forceinline__ void add_branch(RowPart<kChunks>& x, const RowPart<kChunks>& branch,
                                           const RowPart<kChunks>& branch_norm, float r) {
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    float value[kChunk], added[kChunk], weight[kChunk];
    unpack(value, x.chunk[j]);
    unpack(added, branch.chunk[j]);
    if constexpr (kNorm) unpack(weight, branch_norm.chunk[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if constexpr (kNorm) added[i] = __fmul_rn(weight[i], __fmul_rn(added[i], r));
      value[i] = __fadd_rn(value[i], added[i]);
    }
    x.chunk[j] = pack(value);
  }
}

struct BranchNormArgs {
  Bf16 *y, *x_sum;
  const Bf16 *x, *branch, *branch_norm, *w;
  int width;
  float inverse_width, eps;
};

// The row that begins at element `row`: x_sum = x + branch, and where there is a y, its norm.
// `shared` as of sum_over_block.
template <int kChunks, bool kVector, bool kNorm>
__device__ __forceinline__ void add_and_normalise(const BranchNormArgs& a, int64_t row,
                                                  RowPart<kChunks>& x,
                                                  const RowPart<kChunks>& branch,
                                                  const RowPart<kChunks>& branch_norm,
                                                  const RowPart<kChunks>& w,
                                                  float (&shared)[2][1][kMaxWarps]) {
  float r = 0.0f;
  if constexpr (kNorm) {
    float sum[1] = {sum_of_squares(branch)};
    sum_over_block(sum, shared[0]);
    r = inverse_rms(sum[0], a.inverse_width, a.eps);
  }
  add_branch<kChunks, kNorm>(x, branch, branch_norm, r);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin < a.width) store_chunk<kVector>(a.x_sum + row + begin, x.chunk[j], a.width - begin);
  }
  if (a.y == nullptr) return;
  float sum[1] = {sum_of_squares(x)};
  sum_over_block(sum, shared[1]);
  store_normalised<kChunks, kVector>(a.y + row, x, w, inverse_rms(sum[0], a.inverse_width, a.eps),
                                     a.width);
}

}  // namespace slimexx::kernels::rows
