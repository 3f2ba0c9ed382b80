// Products of rows and weights (N2: ascending k, one fused multiply-add chain per output).
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// y[T,N] = x[T,K] w[N,K]^T (+ bias[N], added last). bias may be undefined. x, y strided, on CUDA
// w too (there y only where it is f32, the others by multiples of 8 elements). y may be f32 on CUDA
// too: the same sums without the last rounding.
void matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor bias);
// (scratch, on the CPU too) h[T,F] with the bits of swiglu_forward after matmul_forward by w[2F,K]
// and bias[2F], whose result stands in scratch or, where the device fuses both, nowhere.
void matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, Tensor w, Tensor bias);
// (scratch) dx[T,K] (+)= dy[T,N] w[N,K]
void matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w, bool accumulate);
// (scratch) dw[N,K] f32 (+)= dy[T,N]^T x[T,K]; dbias[N] f32 += column sums of dy. Of the two what
// is undefined is not computed: there is no bias, or it is frozen.
void matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate = true);

}  // namespace slimexx::ops
