#include "slimexx/kernels/gemm.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "slimexx/base/error.h"
#include "slimexx/kernels/gemm_backward.h"
#include "slimexx/kernels/rows.h"

namespace slimexx::ops::cuda {
namespace {

// Products of few rows load their weights while the kernels before them still run. That is safe
// because weights are parameters, and a forward pass begins with kernels that wait for the last
// writer of the parameters.
constexpr int64_t kEarlyRows = 64;

}  // namespace

void check_launch(const char* op, const char* fault, const Tensor& a, const Tensor& b) {
  if (fault == nullptr) return;
  throw Error(ErrorCode::kRun,
              std::string(op) + " of " + a.shape_text() + " and " + b.shape_text() + ": " + fault);
}

void matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor bias) {
  SLX_CHECK(y.stride(0) == y.dim(1) || y.dtype() == tensor::DType::kF32,
            "matmul_forward: y {} is strided, but only f32 rows may be", y.shape_text());
  const bool f32 = y.dtype() == tensor::DType::kF32;
  const kernels::GemmArgs args{
      .x = x.raw(),
      .w = w.raw(),
      .bias = bias.raw(),
      .y = y.raw(),
      .m = x.dim(0),
      .n = w.dim(0),
      .k = w.dim(1),
      .overlap_previous = x.dim(0) <= kEarlyRows,
      .output = f32 ? kernels::GemmOutput::kF32 : kernels::GemmOutput::kBf16,
      .y_stride = y.stride(0),
      .x_stride = x.stride(0),
      .w_stride = w.stride(0)};
  check_launch("matmul_forward", kernels::launch_gemm(args, handle(ctx)), x, w);
}

bool fuses_swiglu(const Tensor& w) { return kernels::fuses_swiglu(w.dim(0), w.dim(1), w.raw()); }

void matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, Tensor w, Tensor bias) {
  const kernels::GemmArgs args{.x = x.raw(),
                               .w = w.raw(),
                               .bias = bias.raw(),
                               .y = h.raw(),
                               .m = x.dim(0),
                               .n = w.dim(0),
                               .k = w.dim(1),
                               .overlap_previous = x.dim(0) <= kEarlyRows};
  check_launch("matmul_swiglu_forward", kernels::launch_gemm_swiglu(args, handle(ctx)), x, w);
}

void matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  const ScratchScope scratch(ctx, kernels::kGemmBackwardWorkspaceBytes);
  if (ctx.planning()) return;
  const kernels::GemmInputGradArgs args{.dy = dy.raw(),
                                        .w = w.raw(),
                                        .dx = dx.raw(),
                                        .m = dy.dim(0),
                                        .n = w.dim(0),
                                        .k = w.dim(1),
                                        .dy_stride = dy.stride(0),
                                        .dx_stride = dx.stride(0),
                                        .accumulate = accumulate};
  check_launch("matmul_backward_input",
               kernels::launch_gemm_input_grad(
                   args, {scratch.data(), kernels::kGemmBackwardWorkspaceBytes}, handle(ctx)),
               dy, w);
}

namespace {

void weight_gradient(const Tensor& dw, const Tensor& dy, const Tensor& x, bool accumulate,
                     void* workspace, cudaStream_t stream) {
  const kernels::GemmWeightGradArgs args{.dy = dy.raw(),
                                         .x = x.raw(),
                                         .dw = dw.raw(),
                                         .m = dy.dim(0),
                                         .n = dy.dim(1),
                                         .k = x.dim(1),
                                         .dy_stride = dy.stride(0),
                                         .x_stride = x.stride(0),
                                         .accumulate = accumulate};
  check_launch("matmul_backward_weight",
               kernels::launch_gemm_weight_grad(
                   args, {workspace, kernels::kGemmBackwardWorkspaceBytes}, stream),
               dy, x);
}

}  // namespace

void matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate) {
  const size_t weight_bytes = dw.defined() ? kernels::kGemmBackwardWorkspaceBytes : 0;
  const size_t bias_bytes =
      dbias.defined() ? kernels::column_sums_workspace(dy.dim(0), dy.dim(1)) : 0;
  const ScratchScope scratch(ctx, std::max(weight_bytes, bias_bytes));
  if (ctx.planning()) return;
  if (dw.defined()) weight_gradient(dw, dy, x, accumulate, scratch.data(), handle(ctx));
  if (dbias.defined())
    SLX_CUDA(kernels::column_sums(dbias.f32(), dy.raw(), dy.stride(0), dy.dim(0), dy.dim(1),
                                  scratch.data(), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
