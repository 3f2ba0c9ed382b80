// Products whose sizes or addresses TMA does not support.
#include "kernels/common/strided_product.cuh"
#include "kernels/gemm/variants.h"

namespace slimexx::kernels {

const char* launch_fallback(const GemmArgs& args, cudaStream_t stream) {
  StridedProduct p{};
  const auto pitch = [&](int64_t stride) { return stride == 0 ? args.k : stride; };
  p.a = {static_cast<const __nv_bfloat16*>(args.x), pitch(args.x_stride), 1};
  p.b = {static_cast<const __nv_bfloat16*>(args.w), pitch(args.w_stride), 1};
  p.d = args.y;
  p.bias = static_cast<const __nv_bfloat16*>(args.bias);
  p.rows = args.m;
  p.columns = args.n;
  p.depth = args.k;
  p.d_stride = args.y_stride == 0 ? args.n : args.y_stride;
  p.d_is_f32 = args.output == GemmOutput::kF32;
  const cudaError_t error = launch_strided_product(p, stream);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels
