// Products of rows and weights (N2: ascending k, one fused multiply-add chain per output).
#pragma once
#include "slimexx/ops/context.h"
#include "slimexx/ops/linear.h"

namespace slimexx::ops {

// y[T,N] = x[T,K] w[N,K]^T (+ bias[N], added last). x and y may be strided; on CUDA x and w by
// multiples of 8 elements, and y only if it is f32. On CUDA an f32 y holds the same sums without
// the last rounding.
void matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& w);
// (scratch, on the CPU too) h[T,F] with the bits of swiglu_forward after matmul_forward by w[2F,K]
// and bias[2F]. The result of matmul_forward is kept in scratch, or not stored at all if the device
// fuses both.
void matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, const Linear& w);
// (scratch) dx[T,K] (+)= dy[T,N] w[N,K]
void matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w, bool accumulate);
// (scratch) dw[N,K] f32 (+)= dy[T,N]^T x[T,K]; dbias[N] f32 += column sums of dy. Either may be
// undefined (no bias, or frozen) and is then not computed.
void matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate = true);

}  // namespace slimexx::ops
