// Computes the gradient of logits that the forward pass kept in memory. The gradient is stored in
// another array or overwrites the logits.
#include <cuda_bf16.h>

#include "kernels/common/bf16.cuh"
#include "kernels/lm_head/gradient.cuh"
#include "kernels/lm_head/products.h"
#include "kernels/vocabulary/launch.cuh"

namespace slimexx::kernels::lm_head {
namespace {

constexpr int kThreads = 512;
constexpr int kVector = 8;  // columns of one 16-byte store; divides the vocabulary
constexpr int kStep = kThreads * kVector;

struct KeptLogits {
  const float* logits;
  __nv_bfloat16* dlogits;
  int64_t dlogits_stride;
  int vocabulary;
  Temperature temperature;
};

struct Vector {
  float4 low, high;
};

// Volatile, because the kernel may overwrite these bytes: no load may move across a barrier.
__device__ __forceinline__ float4 load_once(const float* from) {
  float4 v;
  asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ Vector load_vector(const float* from) {
  return {load_once(from), load_once(from + 4)};
}

template <bool kDivide>
__device__ __forceinline__ uint4 form_gradient(const Vector& v, int column, const GradientRow& row,
                                               Temperature temperature) {
  float x[kVector] = {v.low.x, v.low.y, v.low.z, v.low.w, v.high.x, v.high.y, v.high.z, v.high.w};
  if constexpr (kDivide) divide_logits(x, is_ordinary(row), temperature);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] = row.gradient(x[i]);
    if (column + i == row.target) x[i] = __fadd_rn(x[i], row.dlp);
    if constexpr (kDivide) x[i] = __fmul_rn(x[i], temperature.reciprocal);
  }
  return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                    pack_bf16(x[6], x[7]));
}

// One block per row, in ascending columns. A gradient has half the bytes of a logit, so if
// gradients overwrite logits, each step overwrites only logits that were read before its barrier.
template <bool kDivide>
__global__ void __launch_bounds__(kThreads, 2)
    form_gradients(const KeptLogits kept, const GradientRows rows) {
  enter_kernel();
  const int64_t r = blockIdx.x;
  const GradientRow row = rows.load(r);
  const float* const in = kept.logits + r * kept.vocabulary;
  __nv_bfloat16* const out = kept.dlogits + r * kept.dlogits_stride;
  const int own = threadIdx.x * kVector;
  Vector next{};
  if (own < kept.vocabulary) next = load_vector(in + own);
  for (int step = 0; step < kept.vocabulary; step += kStep) {
    const Vector current = next;
    const int column = step + own;
    if (column + kStep < kept.vocabulary) next = load_vector(in + column + kStep);
    __syncthreads();
    if (column >= kept.vocabulary) continue;
    *reinterpret_cast<uint4*>(out + column) =
        form_gradient<kDivide>(current, column, row, kept.temperature);
  }
}

}  // namespace

const char* launch_kept_backward(const LmHeadKeptArgs& a, int64_t dlogits_stride,
                                 cudaStream_t stream) {
  const LmHeadGradient& g = a.gradient;
  const KeptLogits kept = {a.logits,
                           static_cast<__nv_bfloat16*>(g.dlogits),
                           dlogits_stride,
                           static_cast<int>(a.vocabulary),
                           {g.temperature, 1.0f / g.temperature}};
  const auto kernel = g.temperature == 1.0f ? form_gradients<false> : form_gradients<true>;
  const cudaError_t error =
      vocabulary::launch(kernel, {a.rows, kThreads}, stream, kept, list_gradient_rows(g));
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels::lm_head
