#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"

namespace slimexx::ops {

void rotary(Stream stream, Tensor x, Tensor cos, Tensor sin, Tensor positions, RotaryStyle style,
            bool inverse) {
  constexpr const char* kOp = "rotary";
  check_f32(kOp, "x", stream, x, {kAny, kAny, kAny}, Strides::kRows);
  check_f32(kOp, "cos", stream, cos, {kAny, kAny});
  check_f32(kOp, "sin", stream, sin, {cos.dim(0), cos.dim(1)});
  check_i32(kOp, "positions", stream, positions, {x.dim(0)});
  SLX_CHECK_LE(2 * cos.dim(1), x.dim(2));
  if (runs_on_cpu(stream)) return cpu::rotary(x, cos, sin, positions, style, inverse);
}

}  // namespace slimexx::ops
