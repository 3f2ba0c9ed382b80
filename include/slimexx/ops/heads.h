// Products of each head's rows with the head's own weights, and copies between heads of different
// widths. Latent attention enters and leaves its latent space with them.
//
// Legend: T packed tokens, n heads, N output features, K input features of a head. Heads may be
// wider than the product, which reads and writes the first elements of each head. Token strides are
// free.
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

// y[T,n,>=N] = x[T,n,>=K] w[n,N,K]^T, by the sums of matmul_forward.
void head_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w);
// dx[T,n,>=K] = dy[T,n,>=N] w[n,N,K]
void head_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w);

// Elements [begin, begin + width) of every head of y[T,n,*] = elements of x[T,n or 1,*] from
// x_begin on; an x with one head is copied to all heads.
void copy_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                       int64_t width);
// y[t,j] = sum over heads h, ascending, of x[t,h,x_begin + j], for y[T,width] and x[T,n,*].
void sum_head_columns(const Context& ctx, Tensor y, Tensor x, int64_t x_begin);

}  // namespace slimexx::ops
