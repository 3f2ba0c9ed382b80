#include "slimexx/ops/router_balance.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::ops {

namespace {

void check_sequences(const char* op, const Context& ctx, const PackedSequences& sequences,
                     int64_t num_tokens) {
  const int64_t cu_size = std::ssize(sequences.cu_seqlens);
  SLX_CHECK_EQ(cu_size, sequences.count() + 1);
  SLX_CHECK_EQ(int64_t{sequences.cu_seqlens.back()}, num_tokens);
  if (ctx.device().is_cpu() || ctx.planning()) return;
  check_i32(op, "device_cu_seqlens", ctx, sequences.device_cu_seqlens, {cu_size});
  check_i32(op, "device_lengths", ctx, sequences.device_lengths, {sequences.count()});
}

}  // namespace

void count_choices(const Context& ctx, Tensor counts, Tensor sums, Tensor ids,
                   const PackedSequences& sequences) {
  constexpr const char* kOp = "count_choices";
  check_f32(kOp, "counts", ctx, counts, {sequences.count(), kAny});
  check_i32(kOp, "ids", ctx, ids, {kAny, kAny});
  check_operand(kOp, "sums", ctx, sums, tensor::DType::kI64, {count_router_sums(counts.dim(1))});
  if (sequences.count() == 0) return;
  check_sequences(kOp, ctx, sequences, ids.dim(0));
  if (ids.dim(0) == 0) return fill_zero(ctx, counts);
  if (runs_on_cpu(ctx)) return cpu::count_choices(counts, sums, ids, sequences);
  SLX_LAUNCH(count_choices(ctx, counts, sums, ids, sequences));
}

void balance_router(const Context& ctx, Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance) {
  constexpr const char* kOp = "balance_router";
  const int64_t experts = rule.num_experts;
  SLX_CHECK_GE(balance.sequences, 1);
  check_f32(kOp, "logits", ctx, logits, {kAny, experts});
  check_f32(kOp, "dlogits", ctx, dlogits, {logits.dim(0), experts});
  check_f32(kOp, "counts", ctx, counts, {sequences.count(), experts});
  check_operand(kOp, "sums", ctx, sums, tensor::DType::kI64, {count_router_sums(experts)});
  if (logits.dim(0) == 0) return;
  check_sequences(kOp, ctx, sequences, logits.dim(0));
  if (runs_on_cpu(ctx))
    return cpu::balance_router(dlogits, sums, counts, logits, sequences, rule, balance);
  SLX_LAUNCH(balance_router(ctx, dlogits, sums, counts, logits, sequences, rule, balance));
}

void move_router_bias(const Context& ctx, Tensor bias, Tensor sums, float rate) {
  constexpr const char* kOp = "move_router_bias";
  check_f32(kOp, "bias", ctx, bias, {kAny});
  check_operand(kOp, "sums", ctx, sums, tensor::DType::kI64, {count_router_sums(bias.dim(0))});
  if (runs_on_cpu(ctx)) return cpu::move_router_bias(bias, sums, rate);
  SLX_LAUNCH(move_router_bias(ctx, bias, sums, rate));
}

}  // namespace slimexx::ops
