// The router of a mixture of experts: which experts a token goes to, and their weights, in f32.
// Formulas: softmax as in Qwen3-MoE, sigmoid with a correction bias as in DeepSeek-V3 (noaux_tc).
//
// Legend: T packed tokens, E experts, k experts of a token.
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };  // how scores follow from logits

// A token's weights are the scores of its chosen experts, divided by their sum + epsilon if
// `normalized`, then multiplied by `scaling_factor`.
struct RouterRule {
  int64_t num_experts = 0, top_k = 0;
  RouterScore score = RouterScore::kSoftmax;
  // Experts form `num_groups` equal groups. Experts are chosen only from the `kept_groups` groups
  // whose two best experts have the largest sums.
  int64_t num_groups = 1, kept_groups = 1;
  bool normalized = true;
  float epsilon = 0, scaling_factor = 1;
  bool operator==(const RouterRule&) const = default;
};

// logits[T,E] f32; bias[E] f32 (may be undefined) is added to the scores only to choose. ids[T,k]
// i32 ascending in a row; weights[T,k] f32. Ties go to the lower expert and the lower group.
void route_forward(const Context& ctx, Tensor ids, Tensor weights, Tensor logits, Tensor bias,
                   const RouterRule& rule);
// Writes dlogits[T,E] f32. The choice counts as constant: softmax passes gradients to all logits,
// sigmoid only to those of the chosen experts.
void route_backward(const Context& ctx, Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule);

}  // namespace slimexx::ops
