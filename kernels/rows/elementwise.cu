// Element-wise operations over flat arrays. Each thread moves pieces of several elements; a piece
// of the wider type has 16 bytes. An incomplete last piece, and arrays that are not aligned to 16
// bytes, are moved element by element.
#include "kernels/rows/launch.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kThreads = 256;

template <class Y, class A>
constexpr int kPiece = sizeof(Y) == 4 || sizeof(A) == 4 ? 4 : 8;  // elements
template <class Y, class A>
constexpr int kPieces = kPiece<Y, A> == 8 ? 2 : 4;  // per thread
template <class Y, class A>
constexpr int64_t kBlockElements = int64_t{kThreads} * kPieces<Y, A>* kPiece<Y, A>;

__device__ __forceinline__ float widen(float f) { return f; }
__device__ __forceinline__ float widen(Bf16 f) { return __bfloat162float(f); }
__device__ __forceinline__ void assign(float& to, float f) { to = f; }
__device__ __forceinline__ void assign(Bf16& to, float f) { to = __float2bfloat16_rn(f); }

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Piece {
  T element[kCount];
};

template <bool kVector, int kCount, class T>
__device__ __forceinline__ Piece<T, kCount> load(const T* p, int valid) {
  if (kVector && valid >= kCount) return *reinterpret_cast<const Piece<T, kCount>*>(p);
  Piece<T, kCount> piece{};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < valid) piece.element[i] = p[i];
  }
  return piece;
}
template <bool kVector, int kCount, class T>
__device__ __forceinline__ void store(T* p, const Piece<T, kCount>& piece, int valid) {
  if (kVector && valid >= kCount) {
    *reinterpret_cast<Piece<T, kCount>*>(p) = piece;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < valid) p[i] = piece.element[i];
  }
}

// The operations: an element of y from one element of each input.
struct Sum {
  __device__ float operator()(float a, float b) const { return __fadd_rn(a, b); }
};
struct SumScaled {
  float factor;
  __device__ float operator()(float a, float b) const { return __fadd_rn(a, __fmul_rn(factor, b)); }
};
struct Product {
  float factor;
  __device__ float operator()(float a, float) const { return __fmul_rn(a, factor); }
};
struct First {
  __device__ float operator()(float a, float) const { return a; }
};

// y[i] = operation(a[i], b[i]); without kBinary b is not read. y may be a or b.
template <bool kVector, bool kBinary, class Y, class A, class Operation>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Y* y, const A* a, const A* b, int64_t n, Operation operation) {
  enter_kernel();
  constexpr int kCount = kPiece<Y, A>, kSteps = kPieces<Y, A>;
  const int64_t first = blockIdx.x * kBlockElements<Y, A> + threadIdx.x * kCount;
  Piece<A, kCount> left[kSteps], right[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int64_t i = first + int64_t{j} * kThreads * kCount;
    const auto valid = static_cast<int>(min(n - i, int64_t{kCount}));
    if (valid <= 0) break;
    left[j] = load<kVector, kCount>(a + i, valid);
    if constexpr (kBinary) right[j] = load<kVector, kCount>(b + i, valid);
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int64_t i = first + int64_t{j} * kThreads * kCount;
    const auto valid = static_cast<int>(min(n - i, int64_t{kCount}));
    if (valid <= 0) break;
    Piece<Y, kCount> result;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const float other = kBinary ? widen(right[j].element[e]) : 0.0f;
      assign(result.element[e], operation(widen(left[j].element[e]), other));
    }
    store<kVector, kCount>(y + i, result, valid);
  }
}

template <class Y, class A, bool kBinary, class Operation>
cudaError_t run(void* y, const void* a, const void* b, int64_t n, Operation operation,
                cudaStream_t stream) {
  const int64_t blocks = divide_up(n, kBlockElements<Y, A>);
  if (n < 0 || blocks > INT_MAX) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const bool vector = has_aligned_rows(y) && has_aligned_rows(a) && has_aligned_rows(b);
  auto* kernel = vector ? elementwise_kernel<true, kBinary, Y, A, Operation>
                        : elementwise_kernel<false, kBinary, Y, A, Operation>;
  return launch(kernel, grid_of(blocks), kThreads, stream, static_cast<Y*>(y),
                static_cast<const A*>(a), static_cast<const A*>(b), n, operation);
}

template <bool kBinary, class Operation>
cudaError_t run_typed(void* y, const void* a, const void* b, Element type, int64_t n,
                      Operation operation, cudaStream_t stream) {
  return type == Element::kF32 ? run<float, float, kBinary>(y, a, b, n, operation, stream)
                               : run<Bf16, Bf16, kBinary>(y, a, b, n, operation, stream);
}

}  // namespace

cudaError_t add(void* y, const void* a, const void* b, Element type, int64_t n,
                cudaStream_t stream) {
  return run_typed<true>(y, a, b, type, n, Sum{}, stream);
}

cudaError_t add_scaled(void* y, const void* x, float factor, Element type, int64_t n,
                       cudaStream_t stream) {
  return run_typed<true>(y, y, x, type, n, SumScaled{factor}, stream);
}

cudaError_t scale(void* y, float factor, Element type, int64_t n, cudaStream_t stream) {
  return run_typed<false>(y, y, nullptr, type, n, Product{factor}, stream);
}

cudaError_t convert(void* y, Element y_type, const void* x, Element x_type, int64_t n,
                    cudaStream_t stream) {
  if (x_type == Element::kF32) {
    return y_type == Element::kF32 ? run<float, float, false>(y, x, nullptr, n, First{}, stream)
                                   : run<Bf16, float, false>(y, x, nullptr, n, First{}, stream);
  }
  return y_type == Element::kF32 ? run<float, Bf16, false>(y, x, nullptr, n, First{}, stream)
                                 : run<Bf16, Bf16, false>(y, x, nullptr, n, First{}, stream);
}

}  // namespace slimexx::kernels
