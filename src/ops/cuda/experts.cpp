#include "slimexx/kernels/experts.h"

#include <iterator>
#include <string>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/router_shape.h"

namespace slimexx::ops::cuda {
namespace {

kernels::GroupedRows grouped(const RoutedRows& routed) {
  return {.offsets = routed.offsets.i32(),
          .experts = routed.offsets.dim(0) - 1,
          .rows = routed.choices.dim(0),
          .likely = routed.likely};
}

// Adds the row of the shared expert after the routed ones, if there is a shared expert.
kernels::GroupedGemmArgs with_shared(kernels::GroupedGemmArgs args, const Tensor& shared_w) {
  if (!shared_w.defined()) return args;
  args.shared_w = shared_w.raw();
  ++args.rows.rows;
  return args;
}

// w[experts, n, k]; y is the result, in forward and backward.
kernels::GroupedGemmArgs product(const Tensor& y, const Tensor& x, const Tensor& w,
                                 const RoutedRows& routed) {
  return {.x = x.raw(),
          .w = w.raw(),
          .y = y.raw(),
          .rows = grouped(routed),
          .n = w.dim(1),
          .k = w.dim(2),
          .one_x_row = x.dim(0) == 1};
}

}  // namespace

void sort_by_expert(const Context& ctx, const RoutedRows& routed, Tensor ids) {
  const int64_t count = ids.num_elements(), experts = routed.offsets.dim(0) - 1;
  const ScratchScope scratch(ctx, kernels::sort_by_expert_workspace(count, experts));
  if (ctx.planning()) return;
  const char* fault = kernels::sort_by_expert(
      routed.offsets.i32(), routed.choices.i32(), routed.tokens.i32(), routed.rows.i32(), ids.i32(),
      count, ids.dim(1), experts, scratch.data(), handle(ctx));
  check_launch("sort_by_expert", fault, ids, routed.offsets);
}

void choose_copies(const Context& ctx, Tensor copies, Tensor ids, std::span<const int32_t> table) {
  const char* fault = kernels::choose_copies(copies.i32(), ids.i32(), ids.num_elements(),
                                             table.data(), std::ssize(table), handle(ctx));
  check_launch("choose_copies", fault, ids, copies);
}

bool fuses_route_and_sort(const Tensor& ids, const RouterRule& rule) {
  return kernels::fuses_route_and_sort(shape_of(rule), ids.dim(0));
}

void route_and_sort(const Context& ctx, const RoutedRows& routed, Tensor ids, Tensor weights,
                    Tensor logits, Tensor bias, const RouterRule& rule) {
  const kernels::RoutedOrder order{.offsets = routed.offsets.i32(),
                                   .choices = routed.choices.i32(),
                                   .tokens = routed.tokens.i32(),
                                   .rows = routed.rows.i32()};
  const char* fault = kernels::route_and_sort(ids.i32(), weights.f32(), order, logits.f32(),
                                              bias.defined() ? bias.f32() : nullptr, shape_of(rule),
                                              logits.dim(0), handle(ctx));
  check_launch("route_and_sort", fault, logits, ids);
}

void combine_add_rms_norm(const Context& ctx, const ResidualNorm& residual, Tensor rows,
                          Tensor weights, Tensor shared, const RoutedRows& routed) {
  const auto& [y, x_sum, x, w, eps] = residual;
  const char* fault = kernels::combine_add_rms_norm(
      y.raw(), x_sum.raw(), x.raw(), rows.raw(), weights.f32(), shared.raw(), routed.rows.i32(),
      w.raw(), x.dim(0), routed.rows.dim(1), x.dim(1), eps, handle(ctx));
  check_launch("combine_add_rms_norm", fault, rows, x);
}

void combine_rows(const Context& ctx, Tensor y, Tensor rows, Tensor weights, Tensor shared,
                  const RoutedRows& routed) {
  const char* fault = kernels::combine_rows(
      y.raw(), rows.raw(), weights.defined() ? weights.f32() : nullptr, shared.raw(),
      routed.rows.i32(), y.dim(0), routed.rows.dim(1), y.dim(1), handle(ctx));
  check_launch("combine_rows", fault, rows, y);
}

void expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w,
                           const RoutedRows& routed, Tensor shared_w, bool follows_product) {
  auto args = with_shared(product(y, x, w, routed), shared_w);
  args.follows_product = follows_product;
  check_launch("expert_matmul_forward", kernels::launch_grouped_gemm(args, handle(ctx)), x, w);
}

bool fuses_expert_swiglu(const Tensor& w) {
  return kernels::fuses_grouped_swiglu(w.dim(1), w.dim(2));
}

void expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, Tensor w,
                                  const RoutedRows& routed, Tensor shared_w) {
  const auto args = with_shared(product(h, x, w, routed), shared_w);
  check_launch("expert_matmul_swiglu_forward",
               kernels::launch_grouped_gemm_swiglu(args, handle(ctx)), x, w);
}

void expert_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w,
                                  const RoutedRows& routed) {
  check_launch("expert_matmul_backward_input",
               kernels::launch_grouped_input_grad(product(dx, dy, w, routed), handle(ctx)), dy, w);
}

void expert_matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dy, Tensor x,
                                   const RoutedRows& routed, bool accumulate) {
  const kernels::GroupedWeightGradArgs args{.dy = dy.raw(),
                                            .x = x.raw(),
                                            .dw = dw.f32(),
                                            .rows = grouped(routed),
                                            .n = dw.dim(1),
                                            .k = dw.dim(2),
                                            .accumulate = accumulate};
  check_launch("expert_matmul_backward_weight",
               kernels::launch_grouped_weight_grad(args, handle(ctx)), dy, x);
}

void expert_swiglu_backward(const Context& ctx, Tensor dweights, Tensor h, Tensor gate_up,
                            Tensor dh, Tensor weights, const RoutedRows& routed) {
  const int32_t* choices = weights.num_dims() == 1 ? nullptr : routed.choices.i32();
  const int32_t* count = routed.offsets.i32() + routed.offsets.dim(0) - 1;
  check_launch("expert_swiglu_backward",
               kernels::expert_swiglu_backward(dweights.f32(), h.raw(), gate_up.raw(), dh.raw(),
                                               weights.f32(), choices, count, dh.dim(0), dh.dim(1),
                                               handle(ctx)),
               dh, h);
}

}  // namespace slimexx::ops::cuda
