#include "rl/advantage/estimators.h"

#include <fmt/format.h>

#include <cmath>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

// A <- (A - mean) / sqrt(var + 1e-8) with the unbiased variance over the rollout's unmasked
// response tokens. Masked positions are whitened too, but have no loss.
void whiten(std::span<const Sample> samples, Advantages& advantages) {
  double n = 0, sum = 0, squares = 0;
  const auto for_each = [&](const auto& visit) {
    for (size_t i = 0; i < samples.size(); ++i) {
      for (size_t t = 0; t < advantages[i].size(); ++t) {
        if (samples[i].loss_mask[t] != 0) visit(double{advantages[i][t]});
      }
    }
  };
  for_each([&](double a) { n += 1, sum += a; });
  if (n < 2) return;
  const double mean = sum / n;
  for_each([&](double a) { squares += (a - mean) * (a - mean); });
  const double inverse = 1 / std::sqrt(squares / (n - 1) + 1e-8);
  for (auto& own : advantages) {
    for (float& a : own) a = static_cast<float>((a - mean) * inverse);
  }
}

}  // namespace

const std::vector<EstimatorInfo>& list_estimators() {
  using enum ops::LossKind;
  static const std::vector<EstimatorInfo> rows = {
      {.name = "grpo",
       .estimate = estimate_grpo,
       .loss = kClip,
       .min_group_size = 2,
       .uses_group_mean = true,
       .uses_deviation = true,
       .doc = "Reward minus the group's mean, divided by the group's standard deviation "
              "(arXiv:2402.03300)."},
      {.name = "gspo",
       .estimate = estimate_grpo,
       .loss = kGspo,
       .min_group_size = 2,
       .uses_group_mean = true,
       .uses_deviation = true,
       .doc = "GRPO's advantages; the importance ratio is per sequence (arXiv:2507.18071)."},
      {.name = "cispo",
       .estimate = estimate_grpo,
       .loss = kCispo,
       .min_group_size = 2,
       .uses_group_mean = true,
       .uses_deviation = true,
       .clips_twice = false,
       .doc = "GRPO's advantages; the clipped importance ratio weights log p (arXiv:2506.13585)."},
      {.name = "reinforce_plus_plus",
       .estimate = estimate_reinforce_plus_plus,
       .loss = kClip,
       .wants_whitening = true,
       .discounts = true,
       .uses_kl_in_reward = true,
       .doc = "Discounted return of KL penalties and the final reward (arXiv:2501.03262)."},
      {.name = "reinforce_plus_plus_baseline",
       .estimate = estimate_reinforce_plus_plus_baseline,
       .loss = kClip,
       .min_group_size = 2,
       .wants_whitening = true,
       .uses_group_mean = true,
       .uses_kl_in_reward = true,
       .doc = "Reward minus the group's mean, minus the KL penalty per token."},
      {.name = "rloo",
       .estimate = estimate_rloo,
       .loss = kClip,
       .min_group_size = 2,
       .uses_kl_in_reward = true,
       .doc = "Reward minus the mean of the group's other samples (arXiv:2402.14740)."},
  };
  return rows;
}

const EstimatorInfo* find_estimator(const std::string& name) {
  for (const auto& row : list_estimators()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::string> list_estimator_names() {
  std::vector<std::string> names;
  for (const auto& row : list_estimators()) names.push_back(row.name);
  return names;
}

ops::KlKind parse_kl_kind(const std::string& name) {
  if (name == "k1") return ops::KlKind::kK1;
  if (name == "k2") return ops::KlKind::kK2;
  if (name == "k3") return ops::KlKind::kK3;
  SLX_CHECK(name == "low_var_kl", "{}", name);
  return ops::KlKind::kLowVar;
}

double group_mean(std::span<const Sample> samples, const sample::SampleGroup& group,
                  RewardOf reward_of) {
  // Sum differences from the first reward, so that the mean of equal rewards is exactly that
  // reward.
  const double first = reward_of(samples[group[0]]);
  double sum = 0;
  for (size_t i : group) sum += reward_of(samples[i]) - first;
  return first + sum / static_cast<double>(group.size());
}

double group_deviation(std::span<const Sample> samples, const sample::SampleGroup& group,
                       RewardOf reward_of) {
  const double mean = group_mean(samples, group, reward_of);
  double squares = 0;
  for (size_t i : group) squares += (reward_of(samples[i]) - mean) * (reward_of(samples[i]) - mean);
  return std::sqrt(squares / static_cast<double>(group.size() - 1));
}

std::vector<float> reference_kl(const Sample& s, const RlOptions& options) {
  std::vector<float> kl(static_cast<size_t>(s.response_length), 0.0f);
  if (s.ref_log_probs.empty()) return kl;
  const auto& log_probs = s.old_log_probs.empty() ? s.rollout_log_probs : s.old_log_probs;
  if (log_probs.size() != kl.size()) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("group {} sample {} has no log-probs, and rl.kl_coef needs them for the KL to "
                    "the reference",
                    s.group, s.sample),
        "add old_log_probs or rollout_log_probs to the rollout dump, or set rl.kl_coef to 0");
  }
  const ops::KlKind kind = parse_kl_kind(options.kl_loss_type);
  for (size_t t = 0; t < kl.size(); ++t) {
    if (s.loss_mask[t] != 0)
      kl[t] = ops::estimate_kl(kind, log_probs[t] - s.ref_log_probs[t]).value;
  }
  return kl;
}

std::vector<float> kl_penalty(const Sample& s, const RlOptions& options) {
  if (options.kl_coef == 0) return std::vector<float>(static_cast<size_t>(s.response_length), 0.0f);
  std::vector<float> penalty = reference_kl(s, options);
  for (float& value : penalty) value *= static_cast<float>(options.kl_coef);
  return penalty;
}

Advantages compute_advantages(std::span<const Sample> samples, const RlOptions& options) {
  const EstimatorInfo* estimator = find_estimator(options.advantage_estimator);
  SLX_CHECK(estimator != nullptr, "{}", options.advantage_estimator);
  Advantages advantages = estimator->estimate(samples, options);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].grader_failed)
      advantages[i].assign(static_cast<size_t>(samples[i].response_length), 0.0f);
  }
  if (options.normalize_advantages) whiten(samples, advantages);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].advantage)
      advantages[i].assign(advantages[i].size(), static_cast<float>(*samples[i].advantage));
  }
  return advantages;
}

}  // namespace slimexx::rl
