// Steps of RMSNorm on the part of a row that a thread holds.
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

// x becomes x + branch, or x + branch_norm * (branch * r) with kNorm, rounded to bf16.
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

}  // namespace slimexx::kernels::rows
