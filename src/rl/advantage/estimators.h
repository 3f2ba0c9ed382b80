// Advantage estimators: one function and one file each under advantage/, and one row in
// estimators.cpp. The row says what an estimator needs; nothing else in the program compares names
// of estimators.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "slimexx/ops/policy_loss.h"
#include "slimexx/rl/run_config.h"
#include "slimexx/sample/sample.h"

namespace slimexx::rl {

using sample::Sample;

using Advantages = std::vector<std::vector<float>>;  // [sample][response_length]

struct EstimatorInfo {
  std::string name;
  Advantages (*estimate)(std::span<const Sample> samples, const RlOptions& options);
  ops::LossKind loss;            // the policy loss for its advantages
  int64_t min_group_size = 1;    // samples per prompt that a baseline needs
  bool wants_whitening = false;  // needs rl.normalize_advantages
  // The keys of `rl` that the estimator uses: rewards_normalization, grpo_std_normalization, gamma,
  // kl_coef, eps_clip_c.
  bool uses_group_mean = false, uses_deviation = false, discounts = false,
       uses_kl_in_reward = false, clips_twice = true;
  std::string doc = {};
};

const std::vector<EstimatorInfo>& list_estimators();
const EstimatorInfo* find_estimator(const std::string& name);
std::vector<std::string> list_estimator_names();

// Runs the estimator (samples whose grader failed get 0), then whitens if rl.normalize_advantages.
// Samples with an `advantage` of their own keep it.
Advantages compute_advantages(std::span<const Sample> samples, const RlOptions& options);

ops::KlKind parse_kl_kind(const std::string& name);

// ---- shared by the estimators ---- Reward plus length penalty; the default for means and
// deviations of groups.
inline double shaped_reward(const Sample& s) { return s.reward + s.length_penalty; }
inline double graded_reward(const Sample& s) { return s.reward; }
using RewardOf = double (*)(const Sample& sample);
double group_mean(std::span<const Sample> samples, const sample::SampleGroup& group,
                  RewardOf reward_of = shaped_reward);
// The unbiased standard deviation of two or more rewards.
double group_deviation(std::span<const Sample> samples, const sample::SampleGroup& group,
                       RewardOf reward_of = shaped_reward);
// KL estimate (rl.kl_loss_type) of the old policy against the reference per response token; 0 if
// masked or without a reference. kl_penalty: reference_kl times kl_coef.
std::vector<float> reference_kl(const Sample& sample, const RlOptions& options);
std::vector<float> kl_penalty(const Sample& sample, const RlOptions& options);

Advantages estimate_grpo(std::span<const Sample> samples, const RlOptions& options);
Advantages estimate_reinforce_plus_plus(std::span<const Sample> samples, const RlOptions& options);
Advantages estimate_reinforce_plus_plus_baseline(std::span<const Sample> samples,
                                                 const RlOptions& options);
Advantages estimate_rloo(std::span<const Sample> samples, const RlOptions& options);

}  // namespace slimexx::rl
