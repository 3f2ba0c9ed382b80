#include "slimexx/ops/matmul.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/ops/deferred.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/float8.h"

namespace slimexx::ops {

void matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& linear) {
  if (linear.is_fp8()) return fp8_matmul_forward(ctx, y, x, linear);
  const auto& [w, bias, values, scales] = linear;
  constexpr const char* kOp = "matmul_forward";
  check_compute(kOp, "x", ctx, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", ctx, w, {kAny, x.dim(1)},
                ctx.device().is_cpu() ? Strides::kContiguous : Strides::kRows);
  if (y.dtype() == tensor::DType::kF32) {
    check_f32(kOp, "y", ctx, y, {x.dim(0), w.dim(0)}, Strides::kRows);
  } else {
    check_compute(kOp, "y", ctx, y, {x.dim(0), w.dim(0)}, Strides::kRows);
  }
  if (bias.defined()) check_compute(kOp, "bias", ctx, bias, {w.dim(0)});
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::matmul_forward(y, x, w, bias);
  SLX_LAUNCH(matmul_forward(ctx, y, x, w, bias));
}

namespace {

// Whether the device computes h without gate_up in memory.
bool fuses_swiglu([[maybe_unused]] tensor::Device device, [[maybe_unused]] const Tensor& w) {
#ifdef SLX_WITH_CUDA
  return !device.is_cpu() && cuda::fuses_swiglu(w);
#else
  return false;
#endif
}

}  // namespace

void matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, const Linear& linear) {
  const auto& [w, bias, values, scales] = linear;
  constexpr const char* kOp = "matmul_swiglu_forward";
  check_compute(kOp, "h", ctx, h, {kAny, kAny});
  check_compute(kOp, "x", ctx, x, {h.dim(0), kAny});
  if (!linear.is_fp8()) check_compute(kOp, "w", ctx, w, {2 * h.dim(1), x.dim(1)});
  if (bias.defined()) check_compute(kOp, "bias", ctx, bias, {2 * h.dim(1)});
  if (x.dim(0) == 0) return;
  if (!linear.is_fp8() && fuses_swiglu(ctx.device(), w)) {
    SLX_LAUNCH(matmul_swiglu_forward(ctx, h, x, w, bias));
    return;
  }
  if (linear.is_fp8() && fp8_matmul_swiglu_forward(ctx, h, x, linear)) return;
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor gate_up = ctx.arena.allocate(h.dtype(), {h.dim(0), 2 * h.dim(1)});
  matmul_forward(ctx, gate_up, x, linear);
  swiglu_forward(ctx, h, gate_up);
}

void matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  constexpr const char* kOp = "matmul_backward_input";
  check_compute(kOp, "dy", ctx, dy, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", ctx, w, {dy.dim(1), kAny});
  check_compute(kOp, "dx", ctx, dx, {dy.dim(0), w.dim(1)}, Strides::kRows);
  if (dy.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::matmul_backward_input(dx, dy, w, accumulate);
  SLX_LAUNCH_SCRATCH(matmul_backward_input(ctx, dx, dy, w, accumulate));
}

void matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate) {
  constexpr const char* kOp = "matmul_backward_weight";
  check_compute(kOp, "dy", ctx, dy, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "x", ctx, x, {dy.dim(0), kAny}, Strides::kRows);
  if (dw.defined()) check_f32(kOp, "dw", ctx, dw, {dy.dim(1), x.dim(1)});
  if (dbias.defined()) check_f32(kOp, "dbias", ctx, dbias, {dy.dim(1)});
  if (!dw.defined() && !dbias.defined()) return;
  if (ctx.deferred != nullptr) return ctx.deferred->add(ctx, dw, dbias, dy, x, accumulate);
  const bool clears = dw.defined() && !accumulate;
  if (dy.dim(0) == 0) {
    if (clears) fill_zero(ctx, dw);
    return;
  }
  if (runs_on_cpu(ctx)) {
    if (clears) cpu::fill_zero(dw);
    return cpu::matmul_backward_weight(dw, dbias, dy, x);
  }
  SLX_LAUNCH_SCRATCH(matmul_backward_weight(ctx, dw, dbias, dy, x, accumulate));
}

}  // namespace slimexx::ops
