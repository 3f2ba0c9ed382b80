#include "slimexx/ops/router_balance.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void balance_router(const Context& ctx, Tensor dlogits, Tensor sums, Tensor counts, Tensor ids,
                    Tensor logits, const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance) {
  constexpr const char* kOp = "balance_router";
  const int64_t experts = rule.num_experts;
  SLX_CHECK_GE(balance.sequences, 1);
  check_f32(kOp, "logits", ctx, logits, {kAny, experts});
  check_f32(kOp, "dlogits", ctx, dlogits, {logits.dim(0), experts});
  check_i32(kOp, "ids", ctx, ids, {logits.dim(0), rule.top_k});
  check_i32(kOp, "counts", ctx, counts, {sequences.count(), experts});
  check_operand(kOp, "sums", ctx, sums, tensor::DType::kI64, {count_router_sums(experts)});
  if (logits.dim(0) == 0) return;
  SLX_CHECK_EQ(int64_t{sequences.cu_seqlens.back()}, logits.dim(0));
  if (runs_on_cpu(ctx))
    return cpu::balance_router(dlogits, sums, counts, ids, logits, sequences.cu_seqlens, rule,
                               balance);
  if (!ctx.planning())
    check_i32(kOp, "device_cu_seqlens", ctx, sequences.device_cu_seqlens, {sequences.count() + 1});
  SLX_LAUNCH(balance_router(ctx, dlogits, sums, counts, ids, logits, sequences, rule, balance));
}

void move_router_bias(const Context& ctx, Tensor bias, Tensor sums, float rate) {
  constexpr const char* kOp = "move_router_bias";
  check_f32(kOp, "bias", ctx, bias, {kAny});
  check_operand(kOp, "sums", ctx, sums, tensor::DType::kI64, {count_router_sums(bias.dim(0))});
  if (runs_on_cpu(ctx)) return cpu::move_router_bias(bias, sums, rate);
  SLX_LAUNCH(move_router_bias(ctx, bias, sums, rate));
}

}  // namespace slimexx::ops
