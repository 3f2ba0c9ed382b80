#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

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
  const DecayRange whole{.begin = 0, .end = master.dim(0), .weight_decay = step.weight_decay};
  adamw_ranges(stream, weights, master, exp_avg, exp_avg_sq, gradient, {&whole, 1}, step);
}

void adamw_ranges(Stream stream, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
                  Tensor gradient, std::span<const DecayRange> ranges, const AdamWStep& step) {
  constexpr const char* kOp = "adamw_ranges";
  for (const auto& [name, x] : {std::pair{"master", &master},
                                {"exp_avg", &exp_avg},
                                {"exp_avg_sq", &exp_avg_sq},
                                {"gradient", &gradient}})
    check_f32(kOp, name, stream, *x, {master.dim(0)});
  check_operand(kOp, "weights", stream, weights, weights.dtype(), {master.dim(0)});
  for (const DecayRange& r : ranges)
    SLX_CHECK(r.begin >= 0 && r.begin <= r.end && r.end <= master.dim(0), "range [{}, {}) of {}",
              r.begin, r.end, master.dim(0));
  if (runs_on_cpu(stream)) {
    AdamWStep own = step;
    for (const DecayRange& r : ranges) {
      own.weight_decay = r.weight_decay;
      const auto part = [&r](const Tensor& x) { return x.rows(r.begin, r.end); };
      cpu::adamw(part(weights), part(master), part(exp_avg), part(exp_avg_sq), part(gradient), own);
    }
    return;
  }
  SLX_LAUNCH_SCRATCH(
      adamw_ranges(stream, weights, master, exp_avg, exp_avg_sq, gradient, ranges, step));
}

double sum_of_squares(Stream stream, Tensor x) {
  check_dense("sum_of_squares", "x", stream, x);
  SLX_CHECK(x.dtype() == tensor::DType::kF32, "sum_of_squares: x is {}", x.shape_text());
  if (runs_on_cpu(stream)) return cpu::sum_of_squares(x);
#ifdef SLX_WITH_CUDA
  if (!stream.device.is_cpu()) return cuda::sum_of_squares(stream, x);
#endif
  return 0.0;
}

}  // namespace slimexx::ops
