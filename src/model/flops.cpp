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

}  // namespace slimexx::model
