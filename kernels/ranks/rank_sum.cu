// A thread adds 16 bytes of every term at a time where terms start at 16 bytes, else one element.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "slimexx/kernels/rank_sum.h"

namespace slimexx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ void assign(float& to, float x) { to = x; }
__device__ __forceinline__ void assign(double& to, double x) { to = x; }
__device__ __forceinline__ void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Piece {
  T element[kCount];
};

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(T* own, const T* others, int rank, int size, int64_t n) {
  using Load = Piece<T, kCount>;
  using Sum = decltype(widen(T{}));
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x; at < n / kCount; at += step) {
    Sum sum[kCount];
    for (int term = 0; term < size; ++term) {
      const T* from = term == rank ? own : others + int64_t{term - (term > rank)} * n;
      const Load piece = reinterpret_cast<const Load*>(from)[at];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const Sum x = widen(piece.element[i]);
        sum[i] = term == 0 ? x : add(sum[i], x);
      }
    }
    Load result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) assign(result.element[i], sum[i]);
    reinterpret_cast<Load*>(own)[at] = result;
  }
}

bool starts_at_16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T>
cudaError_t sum_terms(void* own, const void* others, int rank, int size, int64_t n,
                      cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(T);
  const bool is_wide = n % kWide == 0 && starts_at_16(own) && starts_at_16(others);
  const int64_t pieces = is_wide ? n / kWide : n;
  const auto blocks =
      static_cast<unsigned>(std::min(kMaxBlocks, (pieces + kThreads - 1) / kThreads));
  auto* kernel = is_wide ? sum_kernel<T, kWide> : sum_kernel<T, 1>;
  kernel<<<blocks, kThreads, 0, stream>>>(static_cast<T*>(own), static_cast<const T*>(others), rank,
                                          size, n);
  return cudaGetLastError();
}

}  // namespace

cudaError_t sum_rank_terms(void* own, const void* others, RankTerm type, int rank, int size,
                           int64_t n, cudaStream_t stream) {
  if (n < 0 || size < 1 || rank < 0 || rank >= size) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  switch (type) {
    case RankTerm::kF32:
      return sum_terms<float>(own, others, rank, size, n, stream);
    case RankTerm::kBf16:
      return sum_terms<__nv_bfloat16>(own, others, rank, size, n, stream);
    case RankTerm::kF64:
      return sum_terms<double>(own, others, rank, size, n, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace slimexx::kernels
