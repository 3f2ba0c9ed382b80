// REINFORCE++: the reward r_k of token k is minus the KL penalty, and the last unmasked token also
// gets the sample's reward. The advantage is the discounted return: A_t = sum_{k>=t} gamma^(k-t)
// r_k.
#include "rl/advantage/estimators.h"

namespace slimexx::rl {

Advantages estimate_reinforce_plus_plus(std::span<const Sample> samples, const RlOptions& options) {
  Advantages advantages;
  for (const auto& s : samples) {
    const std::vector<float> penalty = kl_penalty(s, options);
    std::vector<float> own(penalty.size());
    double future = 0;
    bool rewarded = false;
    for (size_t t = own.size(); t-- > 0;) {
      double reward = -double{penalty[t]};
      if (!rewarded && s.loss_mask[t] != 0) {
        reward += shaped_reward(s);
        rewarded = true;
      }
      future = reward + options.gamma * future;
      own[t] = static_cast<float>(future);
    }
    advantages.push_back(std::move(own));
  }
  return advantages;
}

}  // namespace slimexx::rl
