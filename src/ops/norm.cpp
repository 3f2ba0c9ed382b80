#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"

namespace slimexx::ops {

void rms_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps) {
  constexpr const char* kOp = "rms_norm_forward";
  check_f32(kOp, "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_f32(kOp, "w", stream, w, {x.dim(1)});
  check_f32(kOp, "y", stream, y, {x.dim(0), x.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::norm_forward(y, x, w, eps);
}

void rms_norm_backward(Stream stream, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate) {
  constexpr const char* kOp = "rms_norm_backward";
  check_f32(kOp, "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_f32(kOp, "dy", stream, dy, {x.dim(0), x.dim(1)}, Strides::kRows);
  check_f32(kOp, "dx", stream, dx, {x.dim(0), x.dim(1)}, Strides::kRows);
  check_f32(kOp, "w", stream, w, {x.dim(1)});
  check_f32(kOp, "dw", stream, dw, {x.dim(1)});
  if (runs_on_cpu(stream)) return cpu::norm_backward(dx, dw, dy, x, w, eps, accumulate);
}

void head_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps) {
  constexpr const char* kOp = "head_norm_forward";
  check_f32(kOp, "x", stream, x, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "w", stream, w, {x.dim(2)});
  check_f32(kOp, "y", stream, y, {x.dim(0), x.dim(1), x.dim(2)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::norm_forward(y, x, w, eps);
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
}

}  // namespace slimexx::ops
