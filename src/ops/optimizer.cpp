#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"

namespace slimexx::ops {

void adamw(Stream stream, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
           Tensor gradient, const AdamWStep& step) {
  constexpr const char* kOp = "adamw";
  check_f32(kOp, "master", stream, master, {kAny});
  check_f32(kOp, "exp_avg", stream, exp_avg, {master.dim(0)});
  check_f32(kOp, "exp_avg_sq", stream, exp_avg_sq, {master.dim(0)});
  check_f32(kOp, "gradient", stream, gradient, {master.dim(0)});
  check_operand(kOp, "weights", stream, weights, weights.dtype(), {master.dim(0)});
  SLX_CHECK_GE(step.step, 1);
  if (runs_on_cpu(stream)) return cpu::adamw(weights, master, exp_avg, exp_avg_sq, gradient, step);
}

double sum_of_squares(Stream stream, Tensor x) {
  check_dense("sum_of_squares", "x", stream, x);
  SLX_CHECK(x.dtype() == tensor::DType::kF32, "sum_of_squares: x is {}", x.shape_text());
  if (runs_on_cpu(stream)) return cpu::sum_of_squares(x);
  return 0.0;
}

}  // namespace slimexx::ops
