#include "slimexx/ops/optimizer.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_adamw(const char* op, const Context& ctx, const Tensor& weights, const Tensor& master,
                 const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& gradient,
                 int64_t flat_elements) {
  check_f32(op, "master", ctx, master, {kAny});
  const int64_t n = master.dim(0);
  const tensor::DType moments =
      exp_avg.dtype() == tensor::DType::kBF16 ? tensor::DType::kBF16 : tensor::DType::kF32;
  check_operand(op, "exp_avg", ctx, exp_avg, moments, {n});
  check_operand(op, "exp_avg_sq", ctx, exp_avg_sq, moments, {n});
  check_f32(op, "gradient", ctx, gradient, {flat_elements});
  check_operand(op, "weights", ctx, weights, weights.dtype(), {flat_elements});
}

}  // namespace

void adamw(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
           Tensor gradient, const AdamWStep& step) {
  check_adamw("adamw", ctx, weights, master, exp_avg, exp_avg_sq, gradient, master.dim(0));
  SLX_CHECK_GE(step.step, 1);
  if (runs_on_cpu(ctx)) return cpu::adamw(weights, master, exp_avg, exp_avg_sq, gradient, step);
  const DecayRange whole{.begin = 0, .end = master.dim(0), .weight_decay = step.weight_decay};
  adamw_ranges(ctx, weights, master, exp_avg, exp_avg_sq, gradient, {&whole, 1}, step);
}

void adamw_ranges(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg,
                  Tensor exp_avg_sq, Tensor gradient, std::span<const DecayRange> ranges,
                  const AdamWStep& step) {
  const int64_t flat = gradient.num_elements();
  check_adamw("adamw_ranges", ctx, weights, master, exp_avg, exp_avg_sq, gradient, flat);
  for (const DecayRange& r : ranges) {
    SLX_CHECK(r.begin >= 0 && r.begin <= r.end && r.end <= master.dim(0),
              "range [{}, {}) exceeds {} elements", r.begin, r.end, master.dim(0));
    SLX_CHECK(r.begin + r.shift >= 0 && r.end + r.shift <= flat,
              "range [{}, {}), shifted by {}, exceeds {} elements", r.begin, r.end, r.shift, flat);
  }
  if (runs_on_cpu(ctx)) {
    AdamWStep own = step;
    for (const DecayRange& r : ranges) {
      own.weight_decay = r.weight_decay;
      const auto part = [&r](const Tensor& x) { return x.rows(r.begin, r.end); };
      const auto shifted = [&r](const Tensor& x) {
        return x.rows(r.begin + r.shift, r.end + r.shift);
      };
      cpu::adamw(shifted(weights), part(master), part(exp_avg), part(exp_avg_sq), shifted(gradient),
                 own);
    }
    return;
  }
  SLX_LAUNCH_SCRATCH(
      adamw_ranges(ctx, weights, master, exp_avg, exp_avg_sq, gradient, ranges, step));
}

double sum_of_squares(const Context& ctx, Tensor x) {
  check_dense("sum_of_squares", "x", ctx, x);
  SLX_CHECK(x.dtype() == tensor::DType::kF32, "sum_of_squares: x is {}, but must be F32",
            x.shape_text());
  const ElementRange whole{.begin = 0, .end = x.num_elements()};
  return sum_of_squares_of_ranges(ctx, x.reshaped({whole.end}), {&whole, 1});
}

double sum_of_squares_of_ranges(const Context& ctx, Tensor x,
                                std::span<const ElementRange> ranges) {
  check_f32("sum_of_squares_of_ranges", "x", ctx, x, {kAny});
  for (const ElementRange& r : ranges)
    SLX_CHECK(r.begin >= 0 && r.begin <= r.end && r.end <= x.dim(0),
              "range [{}, {}) exceeds {} elements", r.begin, r.end, x.dim(0));
  double sum = 0;
  if (runs_on_cpu(ctx)) {
    for (const ElementRange& r : ranges) sum += cpu::sum_of_squares(x.rows(r.begin, r.end));
  }
#ifdef SLX_WITH_CUDA
  if (!ctx.device().is_cpu()) sum = cuda::sum_of_squares(ctx, x, ranges);
#endif
  return sum;
}

}  // namespace slimexx::ops
