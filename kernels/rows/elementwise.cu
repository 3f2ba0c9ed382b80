// Element-wise operations: flat arrays, and SwiGLU over rows. Each thread moves pieces of eight
// elements; the last, incomplete piece, and arrays that do not start at 16 bytes, go one by one.
#include "kernels/rows/launch.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kThreads = 256;
constexpr int kPieces = 2;  // of one thread
constexpr int64_t kBlockElements = int64_t{kThreads} * kPieces * kChunk;

template <bool kVector>
__device__ __forceinline__ void load(float (&f)[kChunk], const Bf16* p, int valid) {
  if (kVector && valid >= kChunk) {
    unpack(f, load_chunk<true>(p, kChunk));
  } else {
    unpack(f, load_chunk<false>(p, valid));
  }
}
template <bool kVector>
__device__ __forceinline__ void load(float (&f)[kChunk], const float* p, int valid) {
  if (kVector && valid >= kChunk) {
    load_floats<true>(f, p, kChunk);
  } else {
    load_floats<false>(f, p, valid);
  }
}
template <bool kVector>
__device__ __forceinline__ void store(Bf16* p, const float (&f)[kChunk], int valid) {
  if (kVector && valid >= kChunk) {
    store_chunk<true>(p, pack(f), kChunk);
  } else {
    store_chunk<false>(p, pack(f), valid);
  }
}
template <bool kVector>
__device__ __forceinline__ void store(float* p, const float (&f)[kChunk], int valid) {
  if (kVector && valid >= kChunk) {
    store_floats<true>(p, f, kChunk);
  } else {
    store_floats<false>(p, f, valid);
  }
}

// What becomes of y's element from the two inputs.
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

// y[i] = operation(a[i], b[i]); b may be null, then it reads as zero. y may be a or b.
template <bool kVector, class Y, class A, class Operation>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Y* y, const A* a, const A* b, int64_t n, Operation operation) {
  enter_kernel();
  const int64_t first = blockIdx.x * kBlockElements + threadIdx.x * kChunk;
  float left[kPieces][kChunk], right[kPieces][kChunk];
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int64_t i = first + int64_t{j} * kThreads * kChunk;
    const auto valid = static_cast<int>(min(n - i, int64_t{kChunk}));
    if (valid <= 0) break;
    load<kVector>(left[j], a + i, valid);
    if (b != nullptr) load<kVector>(right[j], b + i, valid);
  }
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int64_t i = first + int64_t{j} * kThreads * kChunk;
    const auto valid = static_cast<int>(min(n - i, int64_t{kChunk}));
    if (valid <= 0) break;
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      left[j][e] = operation(left[j][e], b != nullptr ? right[j][e] : 0.0f);
    }
    store<kVector>(y + i, left[j], valid);
  }
}

template <class Y, class A, class Operation>
cudaError_t run(void* y, const void* a, const void* b, int64_t n, Operation operation,
                cudaStream_t stream) {
  if (n < 0 || divide_up(n, kBlockElements) > INT_MAX) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const bool vector = is_aligned(y) && is_aligned(a) && is_aligned(b);
  auto* kernel = vector ? elementwise_kernel<true, Y, A, Operation>
                        : elementwise_kernel<false, Y, A, Operation>;
  return launch(kernel, grid_of(divide_up(n, kBlockElements)), kThreads, stream, static_cast<Y*>(y),
                static_cast<const A*>(a), static_cast<const A*>(b), n, operation);
}

template <class Operation>
cudaError_t run_typed(void* y, const void* a, const void* b, Element type, int64_t n,
                      Operation operation, cudaStream_t stream) {
  return type == Element::kF32 ? run<float, float>(y, a, b, n, operation, stream)
                               : run<Bf16, Bf16>(y, a, b, n, operation, stream);
}

}  // namespace

cudaError_t add(void* y, const void* a, const void* b, Element type, int64_t n,
                cudaStream_t stream) {
  return run_typed(y, a, b, type, n, Sum{}, stream);
}

cudaError_t add_scaled(void* y, const void* x, float factor, Element type, int64_t n,
                       cudaStream_t stream) {
  return run_typed(y, y, x, type, n, SumScaled{factor}, stream);
}

cudaError_t scale(void* y, float factor, Element type, int64_t n, cudaStream_t stream) {
  return run_typed(y, y, nullptr, type, n, Product{factor}, stream);
}

cudaError_t convert(void* y, Element y_type, const void* x, Element x_type, int64_t n,
                    cudaStream_t stream) {
  if (x_type == Element::kF32) {
    return y_type == Element::kF32 ? run<float, float>(y, x, nullptr, n, First{}, stream)
                                   : run<Bf16, float>(y, x, nullptr, n, First{}, stream);
  }
  return y_type == Element::kF32 ? run<float, Bf16>(y, x, nullptr, n, First{}, stream)
                                 : run<Bf16, Bf16>(y, x, nullptr, n, First{}, stream);
}

}  // namespace slimexx::kernels
