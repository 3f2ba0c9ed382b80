#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void matmul_forward(Stream stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  constexpr const char* kOp = "matmul_forward";
  check_compute(kOp, "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", stream, w, {kAny, x.dim(1)});
  if (y.dtype() == tensor::DType::kF32) {
    check_f32(kOp, "y", stream, y, {x.dim(0), w.dim(0)}, Strides::kRows);
  } else {
    check_compute(kOp, "y", stream, y, {x.dim(0), w.dim(0)}, Strides::kRows);
  }
  if (bias.defined()) check_compute(kOp, "bias", stream, bias, {w.dim(0)});
  if (runs_on_cpu(stream)) return cpu::matmul_forward(y, x, w, bias);
  SLX_LAUNCH(matmul_forward(stream, y, x, w, bias));
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

void matmul_swiglu_forward(Stream stream, Tensor h, Tensor x, Tensor w, Tensor bias) {
  constexpr const char* kOp = "matmul_swiglu_forward";
  check_compute(kOp, "h", stream, h, {kAny, kAny});
  check_compute(kOp, "x", stream, x, {h.dim(0), kAny});
  check_compute(kOp, "w", stream, w, {2 * h.dim(1), x.dim(1)});
  if (bias.defined()) check_compute(kOp, "bias", stream, bias, {w.dim(0)});
  if (fuses_swiglu(stream.device, w)) {
    SLX_LAUNCH(matmul_swiglu_forward(stream, h, x, w, bias));
    return;
  }
  SLX_CHECK(stream.scratch != nullptr, "{}: the stream has no scratch arena", kOp);
  const tensor::ArenaScope scope(*stream.scratch);
  const Tensor gate_up = stream.scratch->allocate(h.dtype(), {h.dim(0), w.dim(0)});
  matmul_forward(stream, gate_up, x, w, bias);
  swiglu_forward(stream, h, gate_up);
}

void matmul_backward_input(Stream stream, Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  constexpr const char* kOp = "matmul_backward_input";
  check_compute(kOp, "dy", stream, dy, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "w", stream, w, {dy.dim(1), kAny});
  check_compute(kOp, "dx", stream, dx, {dy.dim(0), w.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::matmul_backward_input(dx, dy, w, accumulate);
  SLX_LAUNCH_SCRATCH(matmul_backward_input(stream, dx, dy, w, accumulate));
}

void matmul_backward_weight(Stream stream, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate) {
  constexpr const char* kOp = "matmul_backward_weight";
  check_compute(kOp, "dy", stream, dy, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "x", stream, x, {dy.dim(0), kAny}, Strides::kRows);
  check_f32(kOp, "dw", stream, dw, {dy.dim(1), x.dim(1)});
  if (dbias.defined()) check_f32(kOp, "dbias", stream, dbias, {dy.dim(1)});
  if (runs_on_cpu(stream)) {
    if (!accumulate) cpu::fill_zero(dw);
    return cpu::matmul_backward_weight(dw, dbias, dy, x);
  }
  SLX_LAUNCH_SCRATCH(matmul_backward_weight(stream, dw, dbias, dy, x, accumulate));
}

}  // namespace slimexx::ops
