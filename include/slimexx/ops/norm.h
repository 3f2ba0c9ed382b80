// RMSNorm over the last dimension (N4): y = w * (x * rsqrt(mean(x^2) + eps)); and LayerNorm.
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// x, y [T,H] (strided rows); w[H].
void rms_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps);
// y = w * ((x - mean) * rsqrt(mean((x - mean)^2) + eps)) + b over rows x, y [T,H]; w, b [H]. y may
// be x. There is no backward: the layers that use it are frozen.
void layer_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor b, float eps);
// x_sum[T,H] = x + branch, or x + rms_norm(branch) with weights branch_norm[H] if defined; then y =
// rms_norm(x_sum) with weights w, if y and w are defined. x_sum may be x if branch_norm is
// undefined.
void add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps);
// (scratch, on the CPU too) dx[T,H] (+)= ...; dw[H] += ..., undefined if w is frozen. Computes the
// statistics again from x.
void rms_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate);
// RMSNorm per head: x, y [T, heads, D] views with a free token stride; w[D]. CPU only: on CUDA
// qk_norm_rotary includes both these norms and rotary.
void head_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps);
void head_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                        float eps);

}  // namespace slimexx::ops
