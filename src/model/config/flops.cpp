#include <algorithm>
#include <cmath>

#include "slimexx/model/families.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {

double forward_flops(const ModelSpec& spec, int64_t num_tokens) {
  double flops = forward_flops(spec.head(), num_tokens);
  const auto add = [&](const auto& block) { flops += forward_flops(block, num_tokens); };
  for (const LayerSpec& layer : spec.layers) {
    std::visit(add, layer.attention);
    std::visit(add, layer.mlp);
  }
  return flops;
}

double mtp_forward_flops(const ModelSpec& spec, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), h = static_cast<double>(spec.hidden_size);
  double flops = 0;
  const auto add = [&](const auto& block) { flops += forward_flops(block, num_tokens); };
  for (const MtpSpec& mtp : spec.mtp) {
    if (!mtp.is_trained) continue;
    flops += 4 * n * h * h;  // input projection [2h, h]: two FLOPs per multiply-add
    std::visit(add, mtp.layer.attention);
    std::visit(add, mtp.layer.mlp);
    add(spec.head());
  }
  return flops;
}

double frozen_weight_flops(const ModelSpec& spec, const StageRange& stage, int64_t num_tokens) {
  if (spec.frozen.empty()) return 0;
  double elements = 0;  // parameter elements that a token uses
  for (const ParameterInfo& info : list_parameters(spec, stage)) {
    const bool is_lookup =
        info.name == "embedding.weight" && !(spec.tied_embeddings && stage.has_head);
    if (!info.frozen_by_name || info.shape.size() == 1 || is_lookup) continue;
    const double share = info.reduce_group == ReduceGroup::kExpert ? expert_rate(spec) : 1;
    elements += share * static_cast<double>(info.num_elements());
  }
  return 2 * static_cast<double>(num_tokens) * elements;
}

RateClass rate_class(const LayerSpec& layer) {
  const auto of_block = [](const auto& block) { return rate_class(block); };
  return std::max(std::visit(of_block, layer.attention), std::visit(of_block, layer.mlp));
}

const ops::RouterRule* find_router(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers)
    if (const ops::RouterRule* rule = router(layer)) return rule;
  return nullptr;
}

double expert_rate(const ModelSpec& spec) {
  const ops::RouterRule* router = find_router(spec);
  return router == nullptr
             ? 0
             : static_cast<double>(router->top_k) / static_cast<double>(router->num_experts);
}

double share_of_experts(double rate, double tokens) { return 1 - std::pow(1 - rate, tokens); }

}  // namespace slimexx::model
