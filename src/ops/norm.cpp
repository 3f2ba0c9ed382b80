#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void rms_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps) {
  constexpr const char* kOp = "rms_norm_forward";
  check_compute(kOp, "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", stream, w, {x.dim(1)});
  check_compute(kOp, "y", stream, y, {x.dim(0), x.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::norm_forward(y, x, w, eps);
  SLX_LAUNCH(rms_norm_forward(stream, y, x, w, eps));
}

void rms_norm_backward(Stream stream, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate) {
  constexpr const char* kOp = "rms_norm_backward";
  check_compute(kOp, "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "dy", stream, dy, {x.dim(0), x.dim(1)}, Strides::kRows);
  check_compute(kOp, "dx", stream, dx, {x.dim(0), x.dim(1)}, Strides::kRows);
  check_compute(kOp, "w", stream, w, {x.dim(1)});
  check_f32(kOp, "dw", stream, dw, {x.dim(1)});
  if (runs_on_cpu(stream)) return cpu::norm_backward(dx, dw, dy, x, w, eps, accumulate);
  SLX_LAUNCH_SCRATCH(rms_norm_backward(stream, dx, dw, dy, x, w, eps, accumulate));
}

void add_rms_norm_forward(Stream stream, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps) {
  constexpr const char* kOp = "add_rms_norm_forward";
  check_compute(kOp, "x", stream, x, {kAny, kAny});
  for (const auto& [name, rows] : {std::pair{"x_sum", &x_sum}, {"branch", &branch}})
    check_compute(kOp, name, stream, *rows, {x.dim(0), x.dim(1)});
  if (branch_norm.defined()) check_compute(kOp, "branch_norm", stream, branch_norm, {x.dim(1)});
  SLX_CHECK_EQ(y.defined(), w.defined());
  if (y.defined()) {
    check_compute(kOp, "y", stream, y, {x.dim(0), x.dim(1)});
    check_compute(kOp, "w", stream, w, {x.dim(1)});
  }
  if (runs_on_cpu(stream)) {
    if (branch_norm.defined()) {
      SLX_CHECK(x_sum.raw() != x.raw(), "{}: x_sum takes the normalised branch first", kOp);
      cpu::norm_forward(x_sum, branch, branch_norm, eps);
      branch = x_sum;
    }
    cpu::add(x_sum, x, branch);
    if (y.defined()) cpu::norm_forward(y, x_sum, w, eps);
    return;
  }
  SLX_LAUNCH(add_rms_norm_forward(stream, y, x_sum, x, branch, branch_norm, w, eps));
}

void head_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps) {
  constexpr const char* kOp = "head_norm_forward";
  check_f32(kOp, "x", stream, x, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "w", stream, w, {x.dim(2)});
  check_f32(kOp, "y", stream, y, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::norm_forward(y, x, w, eps);
  SLX_LAUNCH(missing(kOp));
}

void head_norm_backward(Stream stream, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                        float eps) {
  constexpr const char* kOp = "head_norm_backward";
  check_f32(kOp, "x", stream, x, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "dy", stream, dy, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  check_f32(kOp, "dx", stream, dx, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  check_f32(kOp, "w", stream, w, {x.dim(2)});
  check_f32(kOp, "dw", stream, dw, {x.dim(2)});
  if (runs_on_cpu(stream)) return cpu::norm_backward(dx, dw, dy, x, w, eps, false);
  SLX_LAUNCH(missing(kOp));
}

}  // namespace slimexx::ops
