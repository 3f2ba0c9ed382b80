#include "slimexx/rollout/decode_rates.h"

namespace slimexx::rollout {

double layer_wait_seconds(const model::LayerSpec& layer) {
  constexpr double kLayer = 23.5e-6, kExperts = 4.7e-6, kLatent = 11.8e-6;
  const auto wait_of = [&](const auto& block) {
    switch (rate_class(block)) {
      case model::RateClass::kDense:
        return 0.0;
      case model::RateClass::kExperts:
        return kExperts;
      case model::RateClass::kLatentAttention:
        return kLatent;
    }
    return 0.0;
  };
  return kLayer + std::visit(wait_of, layer.mlp) + std::visit(wait_of, layer.attention);
}

double bytes_of_logits(const model::ModelSpec& spec) {
  return 3 * sizeof(float) * static_cast<double>(spec.vocab_size);
}

}  // namespace slimexx::rollout
