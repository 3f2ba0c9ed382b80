#include "slimexx/rollout/decode_rates.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "slimexx/base/check.h"
#include "slimexx/dist/host.h"

namespace slimexx::rollout {

double layer_wait_seconds(const model::LayerSpec& layer, const tensor::LayerWaits& waits) {
  const auto wait_of = [&](const auto& block) {
    switch (rate_class(block)) {
      case model::RateClass::kDense:
        return 0.0;
      case model::RateClass::kExperts:
        return waits.experts;
      case model::RateClass::kLatentAttention:
        return waits.latent_attention;
    }
    return 0.0;
  };
  return waits.layer + std::visit(wait_of, layer.mlp) + std::visit(wait_of, layer.attention);
}

double bytes_of_logits(const model::ModelSpec& spec) {
  return 3 * sizeof(float) * static_cast<double>(spec.vocab_size);
}

// Each exchange gives the ranks of one group the same rates. The larger group contains the smaller
// groups of all its ranks, so after both exchanges all its ranks have the same rates.
tensor::DecodeRates agree_on_rates(const dist::Groups& host, const tensor::DecodeRates& own) {
  static_assert(std::is_trivially_copyable_v<tensor::DecodeRates>);
  tensor::DecodeRates slowest = own;
  for (dist::Collective* ranks : {&host.tp, &host.ep}) {
    if (ranks->size() == 1) continue;
    const std::string bytes(reinterpret_cast<const char*>(&slowest), sizeof slowest);
    for (const std::string& theirs : dist::all_gather_bytes(*ranks, bytes)) {
      SLX_CHECK_EQ(theirs.size(), sizeof slowest);
      tensor::DecodeRates rates;
      std::memcpy(&rates, theirs.data(), sizeof rates);
      if (rates < slowest) slowest = rates;
    }
  }
  return slowest;
}

}  // namespace slimexx::rollout
