// A thread adds 16 bytes of every term at a time if all terms are 16-byte aligned, otherwise one
// element at a time.
#include "slimexx/kernels/rank_sum.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/sizes.h"
#include "kernels/ranks/rank_terms.cuh"

namespace slimexx::kernels {
namespace {

using namespace rank_terms;

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(T* own, const T* others, int rank, int size, int64_t n) {
  using Load = Piece<T, kCount>;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x; at < n / kCount; at += step) {
    PieceSum<T, kCount> sum;
    for (int term = 0; term < size; ++term) {
      const T* from = term == rank ? own : others + int64_t{term - (term > rank)} * n;
      sum.take(reinterpret_cast<const Load*>(from)[at], term == 0);
    }
    reinterpret_cast<Load*>(own)[at] = sum.round();
  }
}

template <class T>
cudaError_t sum_terms(void* own, const void* others, int rank, int size, int64_t n,
                      cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(T);
  const bool is_wide = n % kWide == 0 && is_aligned(own, 16) && is_aligned(others, 16);
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
