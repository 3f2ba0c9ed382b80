#include "slimexx/kernels/rows.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "slimexx/base/error.h"

namespace slimexx::ops::cuda {
namespace {

kernels::Element element(const Tensor& x) {
  SLX_CHECK(x.dtype() == tensor::DType::kF32 || x.dtype() == tensor::DType::kBF16, "{}",
            x.shape_text());
  return x.dtype() == tensor::DType::kF32 ? kernels::Element::kF32 : kernels::Element::kBF16;
}

}  // namespace

void missing(const char* op) {
  throw Error(ErrorCode::kEnvironment, std::string(op) + " has no kernel of its own on CUDA",
              "use the fused op that contains it");
}

void swiglu_forward(const Context& ctx, Tensor h, Tensor gate_up) {
  SLX_CUDA(kernels::swiglu_forward(h.raw(), gate_up.raw(), h.dim(0), h.dim(1), handle(ctx)));
}

void swiglu_backward(const Context& ctx, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up) {
  SLX_CUDA(kernels::swiglu_backward(dgate_up.raw(), h.raw(), dh.raw(), gate_up.raw(), dh.dim(0),
                                    dh.dim(1), handle(ctx)));
}

void add(const Context& ctx, Tensor y, Tensor a, Tensor b) {
  SLX_CUDA(kernels::add(y.raw(), a.raw(), b.raw(), element(y), y.num_elements(), handle(ctx)));
}

void add_scaled(const Context& ctx, Tensor y, Tensor x, float factor) {
  SLX_CUDA(
      kernels::add_scaled(y.raw(), x.raw(), factor, element(y), y.num_elements(), handle(ctx)));
}

void scale(const Context& ctx, Tensor y, float factor) {
  SLX_CUDA(kernels::scale(y.raw(), factor, element(y), y.num_elements(), handle(ctx)));
}

void fill_zero(const Context& ctx, Tensor y) {
  SLX_CUDA(cudaMemsetAsync(y.raw(), 0, static_cast<size_t>(y.size_bytes()), handle(ctx)));
}

void copy(const Context& ctx, Tensor y, Tensor x) {
  if (y.dtype() == x.dtype()) return tensor::copy_bytes(ctx.stream, y, x);
  SLX_CUDA(
      kernels::convert(y.raw(), element(y), x.raw(), element(x), x.num_elements(), handle(ctx)));
}

void copy_rows(const Context& ctx, Tensor y, Tensor x) {
  // Copies elements of two bytes: cudaMemcpy2D takes 2.2 times as long.
  SLX_CUDA(kernels::copy_rows(y.raw(), 2 * y.stride(0), x.raw(), 2 * x.stride(0), x.dim(0),
                              2 * x.dim(1), handle(ctx)));
}

void gather_rows(const Context& ctx, Tensor y, Tensor x, Tensor rows) {
  SLX_CUDA(kernels::gather_rows(y.raw(), y.stride(0), x.raw(), x.stride(0), rows.i32(), rows.dim(0),
                                x.dim(1), handle(ctx)));
}

void scatter_add_rows(const Context& ctx, Tensor dx, Tensor dy, Tensor rows) {
  SLX_CUDA(kernels::scatter_add_rows(dx.raw(), dx.stride(0), dy.raw(), dy.stride(0), rows.i32(),
                                     rows.dim(0), dx.dim(1), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
