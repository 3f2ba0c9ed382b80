#include "slimexx/kernels/rows.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"

namespace slimexx::ops::cuda {

void rms_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps) {
  SLX_CUDA(kernels::rms_norm_forward(y.raw(), y.stride(0), x.raw(), x.stride(0), w.raw(), x.dim(0),
                                     x.dim(1), eps, handle(ctx)));
}

void layer_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor b, float eps) {
  SLX_CUDA(kernels::layer_norm_forward(y.raw(), y.stride(0), x.raw(), x.stride(0), w.raw(), b.raw(),
                                       x.dim(0), x.dim(1), eps, handle(ctx)));
}

void add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps) {
  SLX_CUDA(kernels::add_rms_norm_forward(y.raw(), x_sum.raw(), x.raw(), branch.raw(),
                                         branch_norm.raw(), w.raw(), x.dim(0), x.dim(1), eps,
                                         handle(ctx)));
}

void rms_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate) {
  const ScratchScope scratch(ctx, kernels::rms_norm_backward_workspace(x.dim(0), x.dim(1)));
  if (ctx.planning()) return;
  SLX_CUDA(kernels::rms_norm_backward(dx.raw(), dx.stride(0), dw.f32(), dy.raw(), dy.stride(0),
                                      x.raw(), x.stride(0), w.raw(), x.dim(0), x.dim(1), eps,
                                      accumulate, scratch.data(), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
