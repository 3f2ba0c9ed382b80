// Group-relative advantages: (R - mean) / (std + 1e-6) with the unbiased deviation, the same for
// every token.
#include "rl/advantage/estimators.h"

namespace slimexx::rl {

Advantages estimate_grpo(std::span<const Sample> samples, const RlOptions& options) {
  Advantages advantages(samples.size());
  for (const auto& group : group_samples(samples)) {
    const double mean = options.rewards_normalization ? group_mean(samples, group) : 0;
    double scale = 1;
    if (options.rewards_normalization && options.grpo_std_normalization && group.size() > 1)
      scale = 1 / (group_deviation(samples, group) + 1e-6);
    for (size_t i : group) {
      advantages[i].assign(static_cast<size_t>(samples[i].response_length),
                           static_cast<float>((shaped_reward(samples[i]) - mean) * scale));
    }
  }
  return advantages;
}

}  // namespace slimexx::rl
