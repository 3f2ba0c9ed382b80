#include "slimexx/ops/experts.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/float8.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::ops {
namespace {

void check_routed(const char* op, const Context& ctx, const RoutedRows& routed,
                  int64_t num_experts) {
  check_i32(op, "rows", ctx, routed.rows, {kAny, kAny});
  check_i32(op, "choices", ctx, routed.choices, {routed.rows.num_elements()});
  check_i32(op, "tokens", ctx, routed.tokens, {routed.rows.num_elements()});
  check_i32(op, "offsets", ctx, routed.offsets, {num_experts == kAny ? kAny : num_experts + 1});
}

int64_t num_rows(const RoutedRows& routed) { return routed.choices.dim(0); }

// Whether the device computes h without gate_up in memory.
bool fuses_expert_swiglu([[maybe_unused]] tensor::Device device, [[maybe_unused]] const Tensor& w) {
#ifdef SLX_WITH_CUDA
  return !device.is_cpu() && cuda::fuses_expert_swiglu(w);
#else
  return false;
#endif
}

// Whether one kernel does route_forward and sort_by_expert.
bool fuses_route_and_sort([[maybe_unused]] tensor::Device device,
                          [[maybe_unused]] const Tensor& ids,
                          [[maybe_unused]] const RouterRule& rule) {
#ifdef SLX_WITH_CUDA
  return !device.is_cpu() && cuda::fuses_route_and_sort(ids, rule);
#else
  return false;
#endif
}

// Number of rows in the products: the routed ones, and the shared expert's row if there is one
// (which needs a single token).
int64_t check_shared(const char* op, const Context& ctx, const RoutedRows& routed, const Linear& w,
                     const Linear& shared) {
  if (!shared.operand().defined()) return num_rows(routed);
  SLX_CHECK(routed.rows.dim(0) == 1, "{}: a shared expert needs a single token, not {}", op,
            routed.rows.dim(0));
  SLX_CHECK_EQ(shared.is_fp8(), w.is_fp8());
  if (!w.is_fp8()) check_compute(op, "shared_w", ctx, shared.weight, {w.rows(), w.columns()});
  return num_rows(routed) + 1;
}

// x has one row for each of `rows`, or the row of a single token for all of them.
void check_inputs(const char* op, const Context& ctx, const Tensor& x, const RoutedRows& routed,
                  int64_t rows, int64_t width) {
  const bool is_one = x.dim(0) == 1 && routed.rows.dim(0) == 1;
  check_compute(op, "x", ctx, x, {is_one ? 1 : rows, width});
}

// x without the row of a shared expert.
Tensor routed_inputs(const Tensor& x, const RoutedRows& routed) {
  return x.dim(0) == 1 ? x : x.rows(0, num_rows(routed));
}

}  // namespace

void sort_by_expert(const Context& ctx, const RoutedRows& routed, Tensor ids) {
  constexpr const char* kOp = "sort_by_expert";
  check_routed(kOp, ctx, routed, kAny);
  check_i32(kOp, "ids", ctx, ids, {routed.rows.dim(0), routed.rows.dim(1)});
  if (runs_on_cpu(ctx)) return cpu::sort_by_expert(routed, ids);
  SLX_LAUNCH_SCRATCH(sort_by_expert(ctx, routed, ids));
}

void choose_copies(const Context& ctx, Tensor copies, Tensor ids, std::span<const int32_t> table) {
  constexpr const char* kOp = "choose_copies";
  check_i32(kOp, "ids", ctx, ids, {kAny, kAny});
  check_i32(kOp, "copies", ctx, copies, {ids.dim(0), ids.dim(1)});
  if (runs_on_cpu(ctx)) return cpu::choose_copies(copies, ids, table);
  SLX_LAUNCH(choose_copies(ctx, copies, ids, table));
}

void route_and_sort(const Context& ctx, const RoutedRows& routed, Tensor ids, Tensor weights,
                    Tensor logits, Tensor bias, const RouterRule& rule) {
  if (!fuses_route_and_sort(ctx.device(), ids, rule)) {
    route_forward(ctx, ids, weights, logits, bias, rule);
    return sort_by_expert(ctx, routed, ids);
  }
  constexpr const char* kOp = "route_and_sort";
  check_route(kOp, ctx, ids, weights, logits, bias, rule);
  check_routed(kOp, ctx, routed, rule.num_experts);
  check_i32(kOp, "rows", ctx, routed.rows, {ids.dim(0), rule.top_k});
  SLX_LAUNCH(route_and_sort(ctx, routed, ids, weights, logits, bias, rule));
}

void combine_rows(const Context& ctx, Tensor y, Tensor rows, Tensor weights, Tensor shared,
                  const RoutedRows& routed) {
  constexpr const char* kOp = "combine_rows";
  check_routed(kOp, ctx, routed, kAny);
  check_compute(kOp, "rows", ctx, rows, {num_rows(routed), kAny});
  check_compute(kOp, "y", ctx, y, {routed.rows.dim(0), rows.dim(1)});
  if (weights.defined())
    check_f32(kOp, "weights", ctx, weights, {routed.rows.dim(0), routed.rows.dim(1)});
  if (shared.defined()) check_compute(kOp, "shared", ctx, shared, {y.dim(0), y.dim(1)});
  if (runs_on_cpu(ctx)) return cpu::combine_rows(y, rows, weights, shared, routed);
  SLX_LAUNCH(combine_rows(ctx, y, rows, weights, shared, routed));
}

void combine_add_rms_norm(const Context& ctx, const ResidualNorm& residual, Tensor rows,
                          Tensor weights, Tensor shared, const RoutedRows& routed) {
  constexpr const char* kOp = "combine_add_rms_norm";
  const auto& [y, x_sum, x, w, eps] = residual;
  if (ctx.device().is_cpu()) {
    const tensor::ArenaScope scope(ctx.arena);
    const Tensor sum = ctx.arena.allocate(x.dtype(), {x.dim(0), x.dim(1)});
    combine_rows(ctx, sum, rows, weights, shared, routed);
    return add_rms_norm_forward(ctx, y, x_sum, x, sum, {}, w, eps);
  }
  check_routed(kOp, ctx, routed, kAny);
  const int64_t tokens = routed.rows.dim(0), width = rows.dim(1);
  check_compute(kOp, "rows", ctx, rows, {num_rows(routed), width});
  check_f32(kOp, "weights", ctx, weights, {tokens, routed.rows.dim(1)});
  check_compute(kOp, "x", ctx, x, {tokens, width});
  check_compute(kOp, "x_sum", ctx, x_sum, {tokens, width});
  if (shared.defined()) check_compute(kOp, "shared", ctx, shared, {tokens, width});
  SLX_CHECK_EQ(y.defined(), w.defined());
  if (y.defined()) {
    check_compute(kOp, "y", ctx, y, {tokens, width});
    check_compute(kOp, "w", ctx, w, {width});
  }
  SLX_LAUNCH(combine_add_rms_norm(ctx, residual, rows, weights, shared, routed));
}

void expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& linear,
                           const RoutedRows& routed, const Linear& shared,
                           [[maybe_unused]] bool follows_product) {
  constexpr const char* kOp = "expert_matmul_forward";
  const Tensor w = linear.weight;
  if (!linear.is_fp8()) check_compute(kOp, "w", ctx, w, {kAny, kAny, kAny});
  check_routed(kOp, ctx, routed, linear.operand().dim(0));
  const int64_t rows = check_shared(kOp, ctx, routed, linear, shared);
  check_inputs(kOp, ctx, x, routed, rows, linear.columns());
  check_compute(kOp, "y", ctx, y, {rows, linear.rows()});
  if (linear.is_fp8()) {
    fp8_expert_matmul_forward(ctx, y.rows(0, num_rows(routed)), routed_inputs(x, routed), linear,
                              routed, follows_product);
  } else if (!runs_on_cpu(ctx)) {
    SLX_LAUNCH(expert_matmul_forward(ctx, y, x, w, routed, shared.weight, follows_product));
    return;
  } else {
    cpu::expert_matmul_forward(y, x, w, routed);
  }
  if (shared.operand().defined())
    matmul_forward(ctx, y.rows(rows - 1, rows), x.rows(x.dim(0) - 1, x.dim(0)), shared);
}

void expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, const Linear& linear,
                                  const RoutedRows& routed, const Linear& shared) {
  constexpr const char* kOp = "expert_matmul_swiglu_forward";
  const Tensor w = linear.weight;
  if (!linear.is_fp8()) check_compute(kOp, "w", ctx, w, {kAny, 2 * h.dim(1), kAny});
  check_routed(kOp, ctx, routed, linear.operand().dim(0));
  const int64_t rows = check_shared(kOp, ctx, routed, linear, shared);
  check_inputs(kOp, ctx, x, routed, rows, linear.columns());
  check_compute(kOp, "h", ctx, h, {rows, kAny});
  if (!linear.is_fp8() && fuses_expert_swiglu(ctx.device(), w)) {
    SLX_LAUNCH(expert_matmul_swiglu_forward(ctx, h, x, w, routed, shared.weight));
    return;
  }
  if (linear.is_fp8() &&
      fp8_expert_matmul_swiglu_forward(ctx, h.rows(0, num_rows(routed)), routed_inputs(x, routed),
                                       linear, routed)) {
    if (shared.operand().defined())
      matmul_swiglu_forward(ctx, h.rows(rows - 1, rows), x.rows(x.dim(0) - 1, x.dim(0)), shared);
    return;
  }
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor gate_up = ctx.arena.allocate(h.dtype(), {h.dim(0), 2 * h.dim(1)});
  expert_matmul_forward(ctx, gate_up, x, linear, routed, shared);
  swiglu_forward(ctx, h, gate_up);
}

void expert_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w,
                                  const RoutedRows& routed) {
  constexpr const char* kOp = "expert_matmul_backward_input";
  check_compute(kOp, "w", ctx, w, {kAny, kAny, kAny});
  check_routed(kOp, ctx, routed, w.dim(0));
  check_compute(kOp, "dy", ctx, dy, {num_rows(routed), w.dim(1)});
  check_compute(kOp, "dx", ctx, dx, {num_rows(routed), w.dim(2)});
  if (runs_on_cpu(ctx)) return cpu::expert_matmul_backward_input(dx, dy, w, routed);
  SLX_LAUNCH(expert_matmul_backward_input(ctx, dx, dy, w, routed));
}

void expert_matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dy, Tensor x,
                                   const RoutedRows& routed, bool accumulate) {
  constexpr const char* kOp = "expert_matmul_backward_weight";
  if (!dw.defined()) return;
  check_f32(kOp, "dw", ctx, dw, {kAny, kAny, kAny});
  check_routed(kOp, ctx, routed, dw.dim(0));
  check_compute(kOp, "dy", ctx, dy, {num_rows(routed), dw.dim(1)});
  check_compute(kOp, "x", ctx, x, {num_rows(routed), dw.dim(2)});
  if (runs_on_cpu(ctx)) return cpu::expert_matmul_backward_weight(dw, dy, x, routed, accumulate);
  SLX_LAUNCH(expert_matmul_backward_weight(ctx, dw, dy, x, routed, accumulate));
}

void expert_swiglu_backward(const Context& ctx, Tensor dweights, Tensor h, Tensor gate_up,
                            Tensor dh, Tensor weights, const RoutedRows& routed) {
  constexpr const char* kOp = "expert_swiglu_backward";
  check_routed(kOp, ctx, routed, kAny);
  check_compute(kOp, "h", ctx, h, {num_rows(routed), kAny});
  check_compute(kOp, "dh", ctx, dh, {num_rows(routed), h.dim(1)});
  check_compute(kOp, "gate_up", ctx, gate_up, {num_rows(routed), 2 * h.dim(1)});
  for (const auto& [name, t] : {std::pair{"weights", weights}, std::pair{"dweights", dweights}}) {
    if (weights.num_dims() == 1)
      check_f32(kOp, name, ctx, t, {num_rows(routed)});
    else
      check_f32(kOp, name, ctx, t, {routed.rows.dim(0), routed.rows.dim(1)});
  }
  if (runs_on_cpu(ctx))
    return cpu::expert_swiglu_backward(dweights, h, gate_up, dh, weights, routed);
  SLX_LAUNCH(expert_swiglu_backward(ctx, dweights, h, gate_up, dh, weights, routed));
}

}  // namespace slimexx::ops
