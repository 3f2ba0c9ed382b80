#include "slimexx/ops/router.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_router_rule(const char* op, const RouterRule& rule) {
  SLX_CHECK(rule.top_k >= 1 && rule.top_k <= rule.num_experts,
            "{}: {} experts per token cannot be chosen from {}", op, rule.top_k, rule.num_experts);
  SLX_CHECK(rule.num_groups >= 1 && rule.num_experts % rule.num_groups == 0 &&
                rule.kept_groups >= 1 && rule.kept_groups <= rule.num_groups &&
                rule.top_k <= rule.num_experts / rule.num_groups * rule.kept_groups,
            "{}: {} kept groups of {}, with {} experts in total, cannot give {} experts per token",
            op, rule.kept_groups, rule.num_groups, rule.num_experts, rule.top_k);
}

}  // namespace

void check_route(const char* op, const Context& ctx, const Tensor& ids, const Tensor& weights,
                 const Tensor& logits, const Tensor& bias, const RouterRule& rule) {
  check_router_rule(op, rule);
  check_f32(op, "logits", ctx, logits, {kAny, rule.num_experts});
  check_i32(op, "ids", ctx, ids, {logits.dim(0), rule.top_k});
  check_f32(op, "weights", ctx, weights, {logits.dim(0), rule.top_k});
  if (bias.defined()) check_f32(op, "bias", ctx, bias, {rule.num_experts});
}

void route_forward(const Context& ctx, Tensor ids, Tensor weights, Tensor logits, Tensor bias,
                   const RouterRule& rule) {
  check_route("route_forward", ctx, ids, weights, logits, bias, rule);
  if (runs_on_cpu(ctx)) return cpu::route_forward(ids, weights, logits, bias, rule);
  SLX_LAUNCH(route_forward(ctx, ids, weights, logits, bias, rule));
}

void route_backward(const Context& ctx, Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule) {
  constexpr const char* kOp = "route_backward";
  check_router_rule(kOp, rule);
  check_f32(kOp, "logits", ctx, logits, {kAny, rule.num_experts});
  check_f32(kOp, "dlogits", ctx, dlogits, {logits.dim(0), rule.num_experts});
  check_i32(kOp, "ids", ctx, ids, {logits.dim(0), rule.top_k});
  check_f32(kOp, "dweights", ctx, dweights, {logits.dim(0), rule.top_k});
  if (runs_on_cpu(ctx)) return cpu::route_backward(dlogits, dweights, ids, logits, rule);
  SLX_LAUNCH(route_backward(ctx, dlogits, dweights, ids, logits, rule));
}

}  // namespace slimexx::ops
