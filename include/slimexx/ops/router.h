// The router of a mixture of experts: which experts a token goes to, and their weights, in f32.
// Formulas: softmax as in Qwen3-MoE, sigmoid with a correction bias as in DeepSeek-V3 (noaux_tc).
//
// Legend: T packed tokens, E experts, k experts of a token.
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };  // of a token's logits

// A token's weights are its scores of the chosen experts, divided by their sum + epsilon if
// `normalized`, times `scaling_factor`.
struct RouterRule {
  int64_t num_experts = 0, top_k = 0;
  RouterScore score = RouterScore::kSoftmax;
  // Experts are in `num_groups` equal groups; the choice is among the `kept_groups` whose two
  // best experts have the largest sum.
  int64_t num_groups = 1, kept_groups = 1;
  bool normalized = true;
  float epsilon = 0, scaling_factor = 1;
  bool operator==(const RouterRule&) const = default;
};

// logits[T,E] f32; bias[E] f32, or undefined, is added to the scores for the choice alone.
// ids[T,k] i32 ascending in a row; weights[T,k] f32. Of equal scores the lower expert wins, of
// equal groups the lower group.
void route_forward(const Context& ctx, Tensor ids, Tensor weights, Tensor logits, Tensor bias,
                   const RouterRule& rule);
// dlogits[T,E] f32 is written. The choice counts as constant: softmax passes gradients to all
// logits, sigmoid to those of the chosen.
void route_backward(const Context& ctx, Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule);

}  // namespace slimexx::ops
