#include "rl/training/learning_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/printable.h"
#include "slimexx/reward/rewards.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kInterval = 10;    // rollouts
constexpr double kNoEntropy = 1e-6;  // nats
constexpr size_t kMaxQuotedBytes = 160;

bool has_advantage(const Sample& s) {
  const size_t count = std::min(s.advantages.size(), s.loss_mask.size());
  for (size_t t = 0; t < count; ++t)
    if (s.loss_mask[t] != 0 && s.advantages[t] != 0) return true;
  return false;
}

}  // namespace

LearningSigns find_signs(std::span<const Sample> samples, std::optional<double> entropy) {
  LearningSigns signs;
  signs.num_samples = std::ssize(samples);
  signs.entropy = entropy;
  for (const Sample& s : samples) {
    signs.num_graded += !s.grader_failed;
    signs.num_truncated += s.status == sample::SampleStatus::kTruncated;
    signs.num_trained_tokens += s.num_trained_tokens();
    signs.has_advantage |= has_advantage(s);
    if (s.grader_failed || !s.reason.starts_with(reward::kNoAnswer)) continue;
    if (signs.num_without_answer++ > 0) continue;
    signs.reason = s.reason.substr(reward::kNoAnswer.size());
    signs.response = s.response_text;
  }
  for (const auto& group : sample::group_samples(samples)) {
    ++signs.num_groups;
    const double first = samples[group[0]].reward;
    if (!std::ranges::all_of(group, [&](size_t i) { return samples[i].reward == first; })) continue;
    if (signs.num_flat_groups++ == 0) signs.flat_reward = first;
  }
  return signs;
}

std::vector<LearningFault> find_learning_faults(const LearningSigns& signs) {
  std::vector<LearningFault> faults;
  if (signs.num_groups > 0 && signs.num_flat_groups == signs.num_groups && !signs.has_advantage) {
    faults.push_back({"no_advantage",
                      fmt::format("no learning signal: in each of the {} groups all samples have "
                                  "the same reward (first group: {:g}), so all advantages are 0; "
                                  "use easier or harder prompts, or more samples per prompt",
                                  signs.num_groups, signs.flat_reward)});
  }
  if (signs.num_graded > 0 && signs.num_without_answer == signs.num_graded) {
    faults.push_back(
        {"no_answer",
         fmt::format(
             "the grader found no answer in {} of {} responses: {}; the first response is \"{}\"",
             signs.num_without_answer, signs.num_graded, signs.reason,
             make_printable(signs.response, kMaxQuotedBytes))});
  }
  if (signs.num_samples > 0 && signs.num_truncated == signs.num_samples) {
    faults.push_back(
        {"all_truncated", fmt::format("all {} responses were truncated at the length limit: raise "
                                      "rollout.rollout_max_response_len, or check that the model's "
                                      "stop token is set (rollout.rollout_stop_token_ids)",
                                      signs.num_samples)});
  }
  if (signs.entropy && signs.num_trained_tokens > 0 && *signs.entropy < kNoEntropy) {
    faults.push_back(
        {"no_entropy", fmt::format("the policy's entropy has collapsed to {:.2g}: all samples of a "
                                   "prompt are nearly identical, so nothing more is learnt; go "
                                   "back to an earlier checkpoint and lower optimizer.lr",
                                   *signs.entropy)});
  }
  if (signs.fp8_changed && *signs.fp8_changed == 0) {
    faults.push_back({"fp8_unchanged",
                      "no FP8 weight changed in this rollout's optimizer steps, so the next "
                      "samples come from the same weights; the master weights collect the updates "
                      "until they change FP8 values, which takes long with this optimizer.lr"});
  }
  return faults;
}

std::vector<std::string> LearningWatch::choose_due(int64_t rollout,
                                                   const std::vector<LearningFault>& faults) {
  std::vector<std::string> due;
  for (const LearningFault& fault : faults) {
    const auto [said, is_first] = last_said_.emplace(fault.name, rollout);
    if (!is_first && rollout - said->second < kInterval) continue;
    said->second = rollout;
    due.push_back(fault.what);
  }
  return due;
}

}  // namespace slimexx::rl
