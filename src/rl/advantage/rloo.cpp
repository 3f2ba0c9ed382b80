// Leave-one-out: A_i = R_i - mean of the group's other rewards, where R_i is the reward less the
// sample's summed KL penalty. In a group of one sample, A_i = 0.
#include "rl/advantage/estimators.h"

namespace slimexx::rl {

Advantages estimate_rloo(std::span<const Sample> samples, const RlOptions& options) {
  Advantages advantages(samples.size());
  for (const auto& group : group_samples(samples)) {
    std::vector<double> rewards;
    double sum = 0;  // of differences from the first reward: exact if rewards are equal
    for (size_t i : group) {
      double reward = shaped_reward(samples[i]);
      for (float p : kl_penalty(samples[i], options)) reward -= p;
      rewards.push_back(reward);
      sum += reward - rewards[0];
    }
    for (size_t k = 0; k < group.size(); ++k) {
      const double others = group.size() > 1
                                ? rewards[0] + (sum - (rewards[k] - rewards[0])) /
                                                   static_cast<double>(group.size() - 1)
                                : rewards[0];
      advantages[group[k]].assign(static_cast<size_t>(samples[group[k]].response_length),
                                  static_cast<float>(rewards[k] - others));
    }
  }
  return advantages;
}

}  // namespace slimexx::rl
