#include "slimexx/kernels/router_balance.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"

namespace slimexx::ops::cuda {

void count_choices(const Context& ctx, Tensor counts, Tensor sums, Tensor ids,
                   const PackedSequences& sequences) {
  const kernels::ChoiceCountArgs args{.ids = ids.i32(),
                                      .cu_seqlens = sequences.device_cu_seqlens.i32(),
                                      .counts = counts.f32(),
                                      .sums = sums.data<int64_t>(),
                                      .tokens = ids.dim(0),
                                      .sequences = sequences.count(),
                                      .experts = counts.dim(1),
                                      .top_k = ids.dim(1)};
  check_launch("count_choices", kernels::count_choices(args, handle(ctx)), counts, ids);
}

void balance_router(const Context& ctx, Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance) {
  const kernels::RouterBalanceArgs args{.logits = logits.f32(),
                                        .cu_seqlens = sequences.device_cu_seqlens.i32(),
                                        .lengths = sequences.device_lengths.i32(),
                                        .counts = counts.f32(),
                                        .sums = sums.data<int64_t>(),
                                        .dlogits = dlogits.f32(),
                                        .tokens = logits.dim(0),
                                        .sequences = sequences.count(),
                                        .experts = rule.num_experts,
                                        .top_k = rule.top_k,
                                        .sigmoid = rule.score == RouterScore::kSigmoid,
                                        .rule = balance};
  check_launch("balance_router", kernels::balance_router(args, handle(ctx)), logits, counts);
}

void move_router_bias(const Context& ctx, Tensor bias, Tensor sums, float rate) {
  check_launch(
      "move_router_bias",
      kernels::move_router_bias(bias.f32(), sums.data<int64_t>(), bias.dim(0), rate, handle(ctx)),
      bias, sums);
}

}  // namespace slimexx::ops::cuda
