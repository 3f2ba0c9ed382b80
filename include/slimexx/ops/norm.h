// RMSNorm over the last dimension (N4): y = w * (x * rsqrt(mean(x^2) + eps)); and LayerNorm.
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// x, y [T,H] (strided rows); w[H].
void rms_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps);
// y = w * ((x - mean) * rsqrt(mean((x - mean)^2) + eps)) + b over rows x, y [T,H]; w, b [H]. y may
// be x. No backward: what it serves is frozen.
void layer_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor b, float eps);
// x_sum[T,H] = x + branch, or x + rms_norm(branch) with weights branch_norm[H] where defined; then
// y = rms_norm(x_sum) with weights w, where y and w are defined. x_sum may be x where branch_norm
// is undefined.
void add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps);
// (scratch, on the CPU too) dx[T,H] (+)= ...; dw[H] += ..., undefined where w is frozen. The
// statistics are computed again from x.
void rms_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate);
// The same per head: x, y [T, heads, D] views whose token stride is free; w[D]. CPU only: on CUDA
// they are part of qk_norm_rotary, and so is rotary.
void head_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps);
void head_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                        float eps);

}  // namespace slimexx::ops
