// REINFORCE++ with the group's mean as baseline: A_t = (R - mean) - kl_coef K_t, where K_t is the
// KL estimate of token t.
#include "rl/advantage/estimators.h"

namespace slimexx::rl {

Advantages estimate_reinforce_plus_plus_baseline(std::span<const Sample> samples,
                                                 const RlOptions& options) {
  Advantages advantages(samples.size());
  for (const auto& group : group_samples(samples)) {
    const double mean = options.rewards_normalization ? group_mean(samples, group) : 0;
    for (size_t i : group) {
      advantages[i] = kl_penalty(samples[i], options);
      for (float& a : advantages[i]) a = static_cast<float>(shaped_reward(samples[i]) - mean) - a;
    }
  }
  return advantages;
}

}  // namespace slimexx::rl
