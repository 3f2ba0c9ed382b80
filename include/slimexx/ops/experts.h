// Rows of tokens to their experts and back, and products of each expert's rows with its weights.
//
// Choice t*k+j is the j-th expert of token t. A routed row is a choice's place
// among R = T*k rows, which stand by expert, and for each expert by token. So the number of routed
// rows does not depend on the data; how many of them are an expert's stays on the device.
//
// Legend: T packed tokens, E experts, k experts of a token, R routed rows, H hidden size, N output
// features, K input features, F feed-forward size.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/context.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops {

// Where routed rows come from and go, all i32.
struct RoutedRows {
  Tensor offsets = {};  // [E+1]: rows [offsets[e], offsets[e+1]) are expert e's
  Tensor choices = {};  // [R]: the choice of a routed row
  Tensor tokens = {};   // [R]: its token, for gather_rows
  Tensor rows = {};     // [T,k]: the routed row of a choice
  // Where offsets[E] may be less than R, how many are likely: for the speed of products. 0: R.
  int64_t likely = 0;
};
// ids[T,k] i32, in [0, E), distinct in a row.
void sort_by_expert(const Context& ctx, const RoutedRows& routed, Tensor ids);

// copies[T,k] i32 = table[ids[T,k]]. The table is read in the call, and has at most kMostExperts
// elements, none of them above 65535.
void choose_copies(const Context& ctx, Tensor copies, Tensor ids, std::span<const int32_t> table);

// route_forward (router.h), then sort_by_expert of the ids: on CUDA one kernel for a few tokens.
// (scratch)
void route_and_sort(const Context& ctx, const RoutedRows& routed, Tensor ids, Tensor weights,
                    Tensor logits, Tensor bias, const RouterRule& rule);

// y[T,H] = sum over a token's choices, in ascending order, of weights[T,k] f32 (undefined: ones)
// times rows[R,H], then + shared[T,H] (may be undefined): in f32, rounded once.
void combine_rows(const Context& ctx, Tensor y, Tensor rows, Tensor weights, Tensor shared,
                  const RoutedRows& routed);
// What a layer adds to its residual stream: x_sum[T,H] = x[T,H] + branch; then y = rms_norm(x_sum)
// with weights w[H], where y and w are defined. x_sum may be x.
struct ResidualNorm {
  Tensor y = {}, x_sum = {}, x = {}, w = {};
  float eps = 0;
};
// combine_rows, then add_rms_norm_forward (norm.h) of its result, which on CUDA does not reach
// memory. (scratch)
void combine_add_rms_norm(const Context& ctx, const ResidualNorm& residual, Tensor rows,
                          Tensor weights, Tensor shared, const RoutedRows& routed);

// y[r,N] = x[r,K] w[e,N,K]^T of the row's expert e; the sums of matmul_forward. Of one token, x may
// be its row alone, [1,K], and there may be a shared expert with weights shared_w[N,K], whose row
// is the one behind the R routed ones of y and x. `follows_product`: a product of the same rows was
// queued on the context since they were sorted, so that a device may load weights early.
void expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w,
                           const RoutedRows& routed, Tensor shared_w = {},
                           bool follows_product = false);
// h[R,F] with the bits of swiglu_forward after expert_matmul_forward by w[E,2F,K]; x and
// shared_w[2F,K] as there. (scratch)
void expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, Tensor w,
                                  const RoutedRows& routed, Tensor shared_w = {});
// dx[r,K] = dy[r,N] w[e,N,K]
void expert_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w,
                                  const RoutedRows& routed);
// dw[E,N,K] f32 (+)= dy[R,N]^T x[R,K] over the rows of each expert; undefined: nothing, w is
// frozen. Behind offsets[E] the next kReadBehindExperts (kernels/limits.h) rows of x are numbers.
void expert_matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dy, Tensor x,
                                   const RoutedRows& routed, bool accumulate);

// What stands between the products of an expert's backward. Forward computed g = swiglu(gate_up)
// and the output W g, which a row's weight w scales. dh[R,F] is W^T dy, dy being the unscaled
// gradient of the sum. Gives dweights f32 = <dh, g> and h[R,F] = w g, for the gradient of W by dy;
// and gate_up[R,2F] becomes its own gradient, of w dh. h may be dh. weights and dweights are [T,k],
// or [R] by routed row. Of rows behind offsets[E] some of h become zero, the rest is left alone.
void expert_swiglu_backward(const Context& ctx, Tensor dweights, Tensor h, Tensor gate_up,
                            Tensor dh, Tensor weights, const RoutedRows& routed);

}  // namespace slimexx::ops
