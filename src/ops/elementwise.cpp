#include "slimexx/ops/elementwise.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_same(const char* op, const char* name, const Context& ctx, const Tensor& x,
                const Tensor& like, bool any_dtype = false) {
  check_dense(op, name, ctx, x);
  SLX_CHECK(x.num_elements() == like.num_elements() && x.num_dims() == like.num_dims(),
            "{}: {} is {}, expected {}", op, name, x.shape_text(), like.shape_text());
  SLX_CHECK(any_dtype ||
                (x.dtype() == like.dtype() && (x.dtype() == tensor::DType::kF32 ||
                                               x.dtype() == tensor::compute_dtype(ctx.device()))),
            "{}: {} {} has an unsupported dtype", op, name, x.shape_text());
}

}  // namespace

void swiglu_forward(const Context& ctx, Tensor h, Tensor gate_up) {
  check_compute("swiglu_forward", "h", ctx, h, {kAny, kAny});
  check_compute("swiglu_forward", "gate_up", ctx, gate_up, {h.dim(0), 2 * h.dim(1)});
  if (h.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::swiglu_forward(h, gate_up);
  SLX_LAUNCH(swiglu_forward(ctx, h, gate_up));
}

void swiglu_backward(const Context& ctx, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up) {
  check_compute("swiglu_backward", "dh", ctx, dh, {kAny, kAny});
  check_compute("swiglu_backward", "gate_up", ctx, gate_up, {dh.dim(0), 2 * dh.dim(1)});
  check_compute("swiglu_backward", "dgate_up", ctx, dgate_up, {dh.dim(0), 2 * dh.dim(1)});
  if (h.defined()) check_compute("swiglu_backward", "h", ctx, h, {dh.dim(0), dh.dim(1)});
  if (dh.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::swiglu_backward(dgate_up, h, dh, gate_up);
  SLX_LAUNCH(swiglu_backward(ctx, dgate_up, h, dh, gate_up));
}

void add(const Context& ctx, Tensor y, Tensor a, Tensor b) {
  check_same("add", "y", ctx, y, y);
  check_same("add", "a", ctx, a, y);
  check_same("add", "b", ctx, b, y);
  if (y.num_elements() == 0) return;
  if (runs_on_cpu(ctx)) return cpu::add(y, a, b);
  SLX_LAUNCH(add(ctx, y, a, b));
}

void add_scaled(const Context& ctx, Tensor y, Tensor x, float factor) {
  check_same("add_scaled", "y", ctx, y, y);
  check_same("add_scaled", "x", ctx, x, y);
  if (y.num_elements() == 0) return;
  if (runs_on_cpu(ctx)) return cpu::add_scaled(y, x, factor);
  SLX_LAUNCH(add_scaled(ctx, y, x, factor));
}

void scale(const Context& ctx, Tensor y, float factor) {
  check_same("scale", "y", ctx, y, y);
  if (y.num_elements() == 0) return;
  if (runs_on_cpu(ctx)) return cpu::scale(y, factor);
  SLX_LAUNCH(scale(ctx, y, factor));
}

void fill_zero(const Context& ctx, Tensor y) {
  check_dense("fill_zero", "y", ctx, y);
  if (y.num_elements() == 0) return;
  if (runs_on_cpu(ctx)) return cpu::fill_zero(y);
  SLX_LAUNCH(fill_zero(ctx, y));
}

void copy(const Context& ctx, Tensor y, Tensor x) {
  check_same("copy", "x", ctx, x, x, true);
  check_same("copy", "y", ctx, y, x, true);
  if (x.num_elements() == 0) return;
  if (runs_on_cpu(ctx)) return cpu::copy(y, x);
  SLX_LAUNCH(copy(ctx, y, x));
}

void copy_rows(const Context& ctx, Tensor y, Tensor x) {
  check_f32("copy_rows", "x", ctx, x, {kAny, kAny}, Strides::kRows);
  check_f32("copy_rows", "y", ctx, y, {x.dim(0), x.dim(1)}, Strides::kRows);
  if (x.num_elements() == 0) return;
  if (runs_on_cpu(ctx)) return cpu::copy_rows(y, x);
  SLX_LAUNCH(copy_rows(ctx, y, x));
}

void gather_rows(const Context& ctx, Tensor y, Tensor x, Tensor rows) {
  check_i32("gather_rows", "rows", ctx, rows, {kAny});
  check_compute("gather_rows", "x", ctx, x, {kAny, kAny}, Strides::kRows);
  check_compute("gather_rows", "y", ctx, y, {rows.dim(0), x.dim(1)}, Strides::kRows);
  if (rows.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::gather_rows(y, x, rows);
  SLX_LAUNCH(gather_rows(ctx, y, x, rows));
}

void scatter_add_rows(const Context& ctx, Tensor dx, Tensor dy, Tensor rows) {
  check_i32("scatter_add_rows", "rows", ctx, rows, {kAny});
  check_compute("scatter_add_rows", "dx", ctx, dx, {kAny, kAny}, Strides::kRows);
  check_compute("scatter_add_rows", "dy", ctx, dy, {rows.dim(0), dx.dim(1)}, Strides::kRows);
  if (rows.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::scatter_add_rows(dx, dy, rows);
  SLX_LAUNCH(scatter_add_rows(ctx, dx, dy, rows));
}

void gather_elements(const Context& ctx, Tensor y, Tensor x, Tensor indices) {
  check_i32("gather_elements", "indices", ctx, indices, {y.num_elements()});
  check_dense("gather_elements", "x", ctx, x);
  check_dense("gather_elements", "y", ctx, y);
  SLX_CHECK(x.dtype() == y.dtype() && tensor::dtype_bytes(x.dtype()) == 4,
            "gather_elements: {} and {} must have one dtype of 4 bytes", x.shape_text(),
            y.shape_text());
  if (indices.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::gather_elements(y, x, indices);
  SLX_LAUNCH(gather_elements(ctx, y, x, indices));
}

}  // namespace slimexx::ops
