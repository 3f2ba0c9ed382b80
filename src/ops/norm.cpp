#include "slimexx/ops/norm.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void rms_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps) {
  constexpr const char* kOp = "rms_norm_forward";
  check_compute(kOp, "x", ctx, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", ctx, w, {x.dim(1)});
  check_compute(kOp, "y", ctx, y, {x.dim(0), x.dim(1)}, Strides::kRows);
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::norm_forward(y, x, w, eps);
  SLX_LAUNCH(rms_norm_forward(ctx, y, x, w, eps));
}

void layer_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor b, float eps) {
  constexpr const char* kOp = "layer_norm_forward";
  check_compute(kOp, "x", ctx, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", ctx, w, {x.dim(1)});
  check_compute(kOp, "b", ctx, b, {x.dim(1)});
  check_compute(kOp, "y", ctx, y, {x.dim(0), x.dim(1)}, Strides::kRows);
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::layer_norm_forward(y, x, w, b, eps);
  SLX_LAUNCH(layer_norm_forward(ctx, y, x, w, b, eps));
}

void rms_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate) {
  constexpr const char* kOp = "rms_norm_backward";
  check_compute(kOp, "x", ctx, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "dy", ctx, dy, {x.dim(0), x.dim(1)}, Strides::kRows);
  check_compute(kOp, "dx", ctx, dx, {x.dim(0), x.dim(1)}, Strides::kRows);
  check_compute(kOp, "w", ctx, w, {x.dim(1)});
  if (x.dim(0) == 0) return;
  const tensor::ArenaScope scope(ctx.arena);
  if (!dw.defined()) dw = ctx.arena.allocate(tensor::DType::kF32, {x.dim(1)});  // result is unused
  check_f32(kOp, "dw", ctx, dw, {x.dim(1)});
  if (runs_on_cpu(ctx)) return cpu::norm_backward(dx, dw, dy, x, w, eps, accumulate);
  SLX_LAUNCH_SCRATCH(rms_norm_backward(ctx, dx, dw, dy, x, w, eps, accumulate));
}

void add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps) {
  constexpr const char* kOp = "add_rms_norm_forward";
  check_compute(kOp, "x", ctx, x, {kAny, kAny});
  for (const auto& [name, rows] : {std::pair{"x_sum", &x_sum}, {"branch", &branch}})
    check_compute(kOp, name, ctx, *rows, {x.dim(0), x.dim(1)});
  if (branch_norm.defined()) check_compute(kOp, "branch_norm", ctx, branch_norm, {x.dim(1)});
  SLX_CHECK_EQ(y.defined(), w.defined());
  if (y.defined()) {
    check_compute(kOp, "y", ctx, y, {x.dim(0), x.dim(1)});
    check_compute(kOp, "w", ctx, w, {x.dim(1)});
  }
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) {
    if (branch_norm.defined()) {
      SLX_CHECK(x_sum.raw() != x.raw(), "{}: x_sum cannot be x if the branch is normed", kOp);
      cpu::norm_forward(x_sum, branch, branch_norm, eps);
      branch = x_sum;
    }
    cpu::add(x_sum, x, branch);
    if (y.defined()) cpu::norm_forward(y, x_sum, w, eps);
    return;
  }
  SLX_LAUNCH(add_rms_norm_forward(ctx, y, x_sum, x, branch, branch_norm, w, eps));
}

void head_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps) {
  constexpr const char* kOp = "head_norm_forward";
  check_f32(kOp, "x", ctx, x, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "w", ctx, w, {x.dim(2)});
  check_f32(kOp, "y", ctx, y, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::norm_forward(y, x, w, eps);
  SLX_LAUNCH(missing(kOp));
}

void head_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                        float eps) {
  constexpr const char* kOp = "head_norm_backward";
  check_f32(kOp, "x", ctx, x, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "dy", ctx, dy, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  check_f32(kOp, "dx", ctx, dx, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  check_f32(kOp, "w", ctx, w, {x.dim(2)});
  check_f32(kOp, "dw", ctx, dw, {x.dim(2)});
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::norm_backward(dx, dw, dy, x, w, eps, false);
  SLX_LAUNCH(missing(kOp));
}

}  // namespace slimexx::ops
