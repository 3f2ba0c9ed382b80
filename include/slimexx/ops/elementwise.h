// SwiGLU, sums, copies, and gathering and scattering of rows by index.
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// h[T,F] = silu(gate) * up, gate_up[T,2F] = gate columns then up columns.
void swiglu_forward(const Context& ctx, Tensor h, Tensor gate_up);
// dgate_up may be gate_up. If h is defined, it receives the forward's result; h may be dh.
void swiglu_backward(const Context& ctx, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up);
void add(const Context& ctx, Tensor y, Tensor a, Tensor b);  // y = a + b, elementwise; y may be a
void add_scaled(const Context& ctx, Tensor y, Tensor x, float scale);  // y += scale * x
void scale(const Context& ctx, Tensor y, float factor);
void fill_zero(const Context& ctx, Tensor y);
void copy(const Context& ctx, Tensor y, Tensor x);       // same shape; converts float dtypes
void copy_rows(const Context& ctx, Tensor y, Tensor x);  // [T,N] f32, both strided
// y[i] = x[rows[i]] (rows i32 [R]); and the transpose dx[rows[i]] += dy[i], distinct rows.
void gather_rows(const Context& ctx, Tensor y, Tensor x, Tensor rows);
void scatter_add_rows(const Context& ctx, Tensor dx, Tensor dy, Tensor rows);
// y[i] = x[indices[i]] over the elements, for tensors of any shape, both i32 or both f32; indices
// i32 [R], one for each of the R elements of y.
void gather_elements(const Context& ctx, Tensor y, Tensor x, Tensor indices);

}  // namespace slimexx::ops
