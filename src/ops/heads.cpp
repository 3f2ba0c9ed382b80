#include "slimexx/ops/heads.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

// x[T,n,>=width] with the tokens and heads of `like`.
void check_heads(const char* op, const char* name, const Context& ctx, const Tensor& x,
                 const Tensor& like, int64_t width) {
  check_compute(op, name, ctx, x, {like.dim(0), like.dim(1), kAny}, Strides::kRows);
  SLX_CHECK_GE(x.dim(2), width);
}

}  // namespace

void head_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w) {
  constexpr const char* kOp = "head_matmul_forward";
  check_compute(kOp, "w", ctx, w, {x.dim(1), kAny, kAny});
  check_heads(kOp, "x", ctx, x, x, w.dim(2));
  check_heads(kOp, "y", ctx, y, x, w.dim(1));
  if (runs_on_cpu(ctx)) return cpu::head_matmul_forward(y, x, w);
  SLX_LAUNCH(head_matmul_forward(ctx, y, x, w));
}

void head_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w) {
  constexpr const char* kOp = "head_matmul_backward_input";
  check_compute(kOp, "w", ctx, w, {dy.dim(1), kAny, kAny});
  check_heads(kOp, "dy", ctx, dy, dy, w.dim(1));
  check_heads(kOp, "dx", ctx, dx, dy, w.dim(2));
  if (runs_on_cpu(ctx)) return cpu::head_matmul_backward_input(dx, dy, w);
  SLX_LAUNCH(head_matmul_backward_input(ctx, dx, dy, w));
}

void copy_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                       int64_t width) {
  constexpr const char* kOp = "copy_head_columns";
  check_heads(kOp, "y", ctx, y, y, begin + width);
  check_compute(kOp, "x", ctx, x, {y.dim(0), x.dim(1) == 1 ? 1 : y.dim(1), kAny}, Strides::kRows);
  SLX_CHECK_GE(x.dim(2), x_begin + width);
  if (runs_on_cpu(ctx)) return cpu::copy_head_columns(y, begin, x, x_begin, width);
  SLX_LAUNCH(copy_head_columns(ctx, y, begin, x, x_begin, width));
}

void sum_head_columns(const Context& ctx, Tensor y, Tensor x, int64_t x_begin) {
  constexpr const char* kOp = "sum_head_columns";
  check_compute(kOp, "y", ctx, y, {x.dim(0), kAny}, Strides::kRows);
  check_heads(kOp, "x", ctx, x, x, x_begin + y.dim(1));
  if (runs_on_cpu(ctx)) return cpu::sum_head_columns(y, x, x_begin);
  SLX_LAUNCH(sum_head_columns(ctx, y, x, x_begin));
}

}  // namespace slimexx::ops
