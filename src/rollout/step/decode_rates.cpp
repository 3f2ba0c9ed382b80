#include "slimexx/rollout/decode_rates.h"

#include <variant>

namespace slimexx::rollout {

double layer_wait_seconds(const model::LayerSpec& layer) {
  constexpr double kLayer = 23.5e-6, kExperts = 4.7e-6, kLatent = 11.8e-6;
  return kLayer + (std::holds_alternative<model::MoeMlpSpec>(layer.mlp) ? kExperts : 0) +
         (std::holds_alternative<model::MlaSpec>(layer.attention) ? kLatent : 0);
}

double bytes_of_logits(const model::ModelSpec& spec) {
  return 3 * sizeof(float) * static_cast<double>(spec.vocab_size);
}

}  // namespace slimexx::rollout
