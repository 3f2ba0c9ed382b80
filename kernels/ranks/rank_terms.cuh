// Terms of a sum over ranks: how each type is loaded, added and rounded (numerics contract, N6).
#pragma once
#include <cuda_bf16.h>

namespace slimexx::kernels::rank_terms {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ void assign(float& to, float x) { to = x; }
__device__ __forceinline__ void assign(double& to, double x) { to = x; }
__device__ __forceinline__ void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

// The elements of one load.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Piece {
  T element[kCount];
};

// Pieces of terms, added from the first term to the last.
template <class T, int kCount>
struct PieceSum {
  using Sum = decltype(widen(T{}));
  Sum sum[kCount];

  __device__ __forceinline__ void take(const Piece<T, kCount>& term, bool is_first) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Sum x = widen(term.element[i]);
      sum[i] = is_first ? x : add(sum[i], x);
    }
  }
  __device__ __forceinline__ Piece<T, kCount> round() const {
    Piece<T, kCount> result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) assign(result.element[i], sum[i]);
    return result;
  }
};

}  // namespace slimexx::kernels::rank_terms
