// Sorts rows of tokens by expert and back, and multiplies each expert's rows with its weights.
//
// Choice t*k+j is the j-th expert of token t. Routed rows are the R = T*k choices sorted by expert,
// then by token. So the number of routed rows does not depend on the data; the number per expert
// stays on the device.
//
// Legend: T packed tokens, E experts, k experts of a token, R routed rows, H hidden size, N output
// features, K input features, F feed-forward size.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/context.h"
#include "slimexx/ops/linear.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops {

// The order of the routed rows, all i32.
struct RoutedRows {
  Tensor offsets = {};  // [E+1]: rows [offsets[e], offsets[e+1]) are expert e's
  Tensor choices = {};  // [R]: the choice of a routed row
  Tensor tokens = {};   // [R]: the token of a routed row, for gather_rows
  Tensor rows = {};     // [T,k]: the routed row of a choice
  // Expected number of rows if offsets[E] may be less than R; only affects speed. 0: R.
  int64_t likely = 0;
};
// ids[T,k] i32, in [0, E), distinct in a row.
void sort_by_expert(const Context& ctx, const RoutedRows& routed, Tensor ids);

// copies[T,k] i32 = table[ids[T,k]]. The table is read during the call; it has at most kMostExperts
// elements, none above 65535.
void choose_copies(const Context& ctx, Tensor copies, Tensor ids, std::span<const int32_t> table);

// (scratch) route_forward (router.h), then sort_by_expert of the ids. On CUDA one kernel does both
// if there are few tokens.
void route_and_sort(const Context& ctx, const RoutedRows& routed, Tensor ids, Tensor weights,
                    Tensor logits, Tensor bias, const RouterRule& rule);

// y[T,H] = sum over a token's choices, in ascending order, of weights[T,k] f32 (undefined: ones)
// times rows[R,H], then + shared[T,H] (may be undefined): in f32, rounded once.
void combine_rows(const Context& ctx, Tensor y, Tensor rows, Tensor weights, Tensor shared,
                  const RoutedRows& routed);
// The residual step of a layer: x_sum[T,H] = x[T,H] + branch; then y = rms_norm(x_sum) with weights
// w[H], if y and w are defined. x_sum may be x.
struct ResidualNorm {
  Tensor y = {}, x_sum = {}, x = {}, w = {};
  float eps = 0;
};
// (scratch) combine_rows, then add_rms_norm_forward (norm.h) of its result. On CUDA the result of
// combine_rows is not written to memory.
void combine_add_rms_norm(const Context& ctx, const ResidualNorm& residual, Tensor rows,
                          Tensor weights, Tensor shared, const RoutedRows& routed);

// y[r,N] = x[r,K] w[e,N,K]^T for the row's expert e, with the sums of matmul_forward. For a single
// token, x may be that token's row alone, [1,K], and there may be a shared expert with weights
// shared_w[N,K]; its row follows the R routed ones in y and x. `follows_product`: a product of the
// same rows was queued on this context after they were sorted, so a device may load weights early.
void expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& w,
                           const RoutedRows& routed, const Linear& shared_w = {},
                           bool follows_product = false);
// (scratch) h[R,F] with the bits of swiglu_forward after expert_matmul_forward by w[E,2F,K]; x and
// shared_w[2F,K] as for expert_matmul_forward.
void expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, const Linear& w,
                                  const RoutedRows& routed, const Linear& shared_w = {});
// dx[r,K] = dy[r,N] w[e,N,K]
void expert_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w,
                                  const RoutedRows& routed);
// dw[E,N,K] f32 (+)= dy[R,N]^T x[R,K] over the rows of each expert. If dw is undefined (w is
// frozen), nothing is computed. The kReadBehindExperts (kernels/limits.h) rows of x after
// offsets[E] must hold finite numbers: they may be read, and are multiplied by zeros.
void expert_matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dy, Tensor x,
                                   const RoutedRows& routed, bool accumulate);

// The step between the two products of an expert's backward. Forward computed g = swiglu(gate_up)
// and the output W g, scaled by the row's weight w. dh[R,F] is W^T dy, where dy is the unscaled
// gradient of the sum. Writes dweights f32 = <dh, g> and h[R,F] = w g (for the gradient of W by
// dy), and overwrites gate_up[R,2F] with its gradient, computed from w dh. h may be dh. weights and
// dweights are [T,k], or [R] by routed row. Some rows of h after offsets[E] become zero; the others
// stay as they are.
void expert_swiglu_backward(const Context& ctx, Tensor dweights, Tensor h, Tensor gate_up,
                            Tensor dh, Tensor weights, const RoutedRows& routed);

}  // namespace slimexx::ops
