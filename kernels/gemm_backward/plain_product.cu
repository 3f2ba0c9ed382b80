// The fallback for products that cuBLASLt does not support.
#include "kernels/common/strided_product.cuh"
#include "kernels/gemm_backward/products.h"

namespace slimexx::kernels {

const char* multiply_plainly(const GradProduct& g, cudaStream_t stream) {
  const auto* a = static_cast<const __nv_bfloat16*>(g.a.data);
  const auto* b = static_cast<const __nv_bfloat16*>(g.b.data);
  StridedProduct p{};
  p.a = g.transpose_a ? StridedMatrix{a, 1, g.a.stride} : StridedMatrix{a, g.a.stride, 1};
  p.b = {b, 1, g.b.stride};
  p.d = g.d;
  p.rows = g.rows();
  p.columns = g.columns();
  p.depth = g.depth();
  p.d_stride = g.d_stride;
  p.d_is_f32 = g.d_is_f32;
  p.accumulate = g.accumulate;
  const cudaError_t error = launch_strided_product(p, stream);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels
