#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_same(const char* op, const char* name, const Stream& stream, const Tensor& x,
                const Tensor& like, bool any_dtype = false) {
  check_dense(op, name, stream, x);
  SLX_CHECK(x.num_elements() == like.num_elements() && x.num_dims() == like.num_dims(),
            "{}: {} is {}, expected {}", op, name, x.shape_text(), like.shape_text());
  SLX_CHECK(any_dtype ||
                (x.dtype() == like.dtype() && (x.dtype() == tensor::DType::kF32 ||
                                               x.dtype() == tensor::compute_dtype(stream.device))),
            "{}: {} is {}", op, name, x.shape_text());
}

}  // namespace

void swiglu_forward(Stream stream, Tensor h, Tensor gate_up) {
  check_compute("swiglu_forward", "h", stream, h, {kAny, kAny});
  check_compute("swiglu_forward", "gate_up", stream, gate_up, {h.dim(0), 2 * h.dim(1)});
  if (runs_on_cpu(stream)) return cpu::swiglu_forward(h, gate_up);
  SLX_LAUNCH(swiglu_forward(stream, h, gate_up));
}

void swiglu_backward(Stream stream, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up) {
  check_compute("swiglu_backward", "dh", stream, dh, {kAny, kAny});
  check_compute("swiglu_backward", "gate_up", stream, gate_up, {dh.dim(0), 2 * dh.dim(1)});
  check_compute("swiglu_backward", "dgate_up", stream, dgate_up, {dh.dim(0), 2 * dh.dim(1)});
  if (h.defined()) check_compute("swiglu_backward", "h", stream, h, {dh.dim(0), dh.dim(1)});
  if (runs_on_cpu(stream)) return cpu::swiglu_backward(dgate_up, h, dh, gate_up);
  SLX_LAUNCH(swiglu_backward(stream, dgate_up, h, dh, gate_up));
}

void add(Stream stream, Tensor y, Tensor a, Tensor b) {
  check_same("add", "y", stream, y, y);
  check_same("add", "a", stream, a, y);
  check_same("add", "b", stream, b, y);
  if (runs_on_cpu(stream)) return cpu::add(y, a, b);
  SLX_LAUNCH(add(stream, y, a, b));
}

void add_scaled(Stream stream, Tensor y, Tensor x, float factor) {
  check_same("add_scaled", "y", stream, y, y);
  check_same("add_scaled", "x", stream, x, y);
  if (runs_on_cpu(stream)) return cpu::add_scaled(y, x, factor);
  SLX_LAUNCH(add_scaled(stream, y, x, factor));
}

void scale(Stream stream, Tensor y, float factor) {
  check_same("scale", "y", stream, y, y);
  if (runs_on_cpu(stream)) return cpu::scale(y, factor);
  SLX_LAUNCH(scale(stream, y, factor));
}

void fill_zero(Stream stream, Tensor y) {
  check_dense("fill_zero", "y", stream, y);
  if (runs_on_cpu(stream)) return cpu::fill_zero(y);
  SLX_LAUNCH(fill_zero(stream, y));
}

void copy(Stream stream, Tensor y, Tensor x) {
  check_same("copy", "x", stream, x, x, true);
  check_same("copy", "y", stream, y, x, true);
  if (runs_on_cpu(stream)) return cpu::copy(y, x);
  SLX_LAUNCH(copy(stream, y, x));
}

void copy_rows(Stream stream, Tensor y, Tensor x) {
  check_f32("copy_rows", "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_f32("copy_rows", "y", stream, y, {x.dim(0), x.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::copy_rows(y, x);
  SLX_LAUNCH(missing("copy_rows"));
}

void gather_rows(Stream stream, Tensor y, Tensor x, Tensor rows) {
  check_i32("gather_rows", "rows", stream, rows, {kAny});
  check_compute("gather_rows", "x", stream, x, {kAny, kAny}, Strides::kRows);
  check_compute("gather_rows", "y", stream, y, {rows.dim(0), x.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::gather_rows(y, x, rows);
  SLX_LAUNCH(gather_rows(stream, y, x, rows));
}

void scatter_add_rows(Stream stream, Tensor dx, Tensor dy, Tensor rows) {
  check_i32("scatter_add_rows", "rows", stream, rows, {kAny});
  check_compute("scatter_add_rows", "dx", stream, dx, {kAny, kAny}, Strides::kRows);
  check_compute("scatter_add_rows", "dy", stream, dy, {rows.dim(0), dx.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::scatter_add_rows(dx, dy, rows);
  SLX_LAUNCH(scatter_add_rows(stream, dx, dy, rows));
}

}  // namespace slimexx::ops
