// Metrics of a rollout's samples, by slime's names.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rl/training/sample_metrics.h"
#include "rl/training/stages.h"

namespace slimexx::rl {
namespace {

// Mean of a per-token field over the rollout's trained tokens.
double token_mean(const std::vector<Sample>& samples, std::vector<float> Sample::*field) {
  double sum = 0, n = 0;
  for (const Sample& s : samples) {
    for (size_t t = 0; t < (s.*field).size(); ++t) {
      if (s.loss_mask[t] == 0) continue;
      sum += (s.*field)[t];
      n += 1;
    }
  }
  return n > 0 ? sum / n : 0;
}

// Mean KL to the reference over the trained tokens; KL terms are 0 elsewhere.
double mean_reference_kl(const std::vector<Sample>& samples, const RlOptions& options) {
  double sum = 0, n = 0;
  for (const auto& s : samples) {
    for (const float kl : reference_kl(s, options)) sum += kl;
    n += static_cast<double>(s.num_trained_tokens());
  }
  return n > 0 ? sum / n : 0;
}

// Mean over the trained tokens of one sample; 0 if there are none.
double masked_mean(const std::vector<float>& values, const std::vector<uint8_t>& mask) {
  double sum = 0, n = 0;
  for (size_t t = 0; t < values.size(); ++t) {
    if (mask[t] == 0) continue;
    sum += values[t];
    n += 1;
  }
  return n > 0 ? sum / n : 0;
}

// Mean advantage over the samples with a grade: over their trained tokens, or over all tokens if
// none is trained, because such a sample counts in the estimator's baseline too.
double mean_advantage(const std::vector<Sample>& samples) {
  double sum = 0, n = 0;
  for (const Sample& s : samples) {
    if (s.grader_failed) continue;
    const bool is_masked = s.num_trained_tokens() == 0;
    sum += masked_mean(s.advantages,
                       is_masked ? std::vector<uint8_t>(s.advantages.size(), 1) : s.loss_mask);
    n += 1;
  }
  return n > 0 ? sum / n : 0;
}

// Lengths of the samples with reward 1, if any; percentiles by nearest rank.
void set_correct_lengths(const std::vector<Sample>& samples, observe::MetricRow& row) {
  std::vector<double> lengths;
  double sum = 0;
  for (const auto& s : samples) {
    if (s.grader_failed || s.reward != 1) continue;
    lengths.push_back(static_cast<double>(s.response_length));
    sum += lengths.back();
  }
  if (lengths.empty()) return;
  std::sort(lengths.begin(), lengths.end());
  row.set("rollout/correct_response_lengths", sum / static_cast<double>(lengths.size()));
  for (const size_t percent : {25, 50, 75, 100}) {
    const size_t rank = (lengths.size() * percent + 99) / 100;
    row.set(fmt::format("rollout/correct_length/p{}", percent), lengths[rank - 1]);
  }
}

void set_group_metrics(const std::vector<Sample>& samples, observe::MetricRow& row) {
  const auto groups = group_samples(samples);
  if (groups.empty()) return;
  double smallest = HUGE_VAL;
  for (const auto& group : groups) smallest = std::min(smallest, static_cast<double>(group.size()));
  row.set("rollout/num_groups", static_cast<double>(groups.size()));
  set_zero_std(samples, "rollout/", row);
  for (int64_t k = 1; k <= static_cast<int64_t>(smallest); k *= 2) {
    double sum = 0;
    for (const auto& group : groups) {
      const auto correct = std::count_if(group.begin(), group.end(),
                                         [&](size_t i) { return samples[i].reward == 1; });
      sum += pass_at_k(static_cast<int64_t>(group.size()), correct, k);
    }
    row.set(fmt::format("passrate/pass@{}", k), sum / static_cast<double>(groups.size()));
  }
}

}  // namespace

void set_rollout_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row) {
  const auto& samples = rollout.samples;
  const auto n = static_cast<double>(samples.size());
  std::vector<double> rewards, lengths;
  double truncated = 0, aborted = 0, total = 0, prompt = 0, tokens = 0, penalty = 0;
  for (const Sample& s : samples) {
    if (!s.grader_failed) {
      rewards.push_back(s.reward);
      // A truncated response counts with its full length, even if it is masked.
      lengths.push_back(static_cast<double>(config.rl.overlong_filtering ? s.response_length
                                                                         : s.num_trained_tokens()));
    }
    penalty += s.length_penalty;
    truncated += s.status == sample::SampleStatus::kTruncated;
    aborted += s.status == sample::SampleStatus::kAborted;
    total += static_cast<double>(s.tokens.size());
    prompt += static_cast<double>(s.prompt_length());
    tokens += static_cast<double>(s.response_length);
  }
  row.set("rollout/step", static_cast<double>(rollout.index));
  row.set("rollout/num_samples", n);
  row.set("rollout/num_tokens", tokens);
  observe::set_statistics(row, "rollout/response_len", lengths);
  row.set("rollout/response_lengths", tokens / n);
  row.set("rollout/total_lengths", total / n);
  row.set("rollout/prompt_lengths", prompt / n);
  if (config.is_sft()) return;
  observe::set_statistics(row, "rollout/raw_reward", rewards);
  if (const double* mean = row.find("rollout/raw_reward/mean"))
    row.set("rollout/raw_reward", *mean);
  set_grader_failed(samples, "rollout/", row);
  set_grader_values(samples, "reward/", row);
  row.set("rollout/truncated_ratio", truncated / n);
  row.set("rollout/truncated", truncated / n);
  row.set("rollout/aborted_ratio", aborted / n);
  row.set("rollout/rewards", mean_advantage(samples));
  if (config.rl.overlong_buffer_len > 0) row.set("rollout/overlong_penalty", penalty / n);
  row.set("rollout/advantages", token_mean(samples, &Sample::advantages));
  if (!samples[0].old_log_probs.empty())
    row.set("rollout/log_probs", token_mean(samples, &Sample::old_log_probs));
  if (!samples[0].rollout_log_probs.empty())
    row.set("rollout/rollout_log_probs", token_mean(samples, &Sample::rollout_log_probs));
  if (!samples[0].ref_log_probs.empty())
    row.set("rollout/ref_log_probs", token_mean(samples, &Sample::ref_log_probs));
  if (config.rl.kl_coef != 0) {
    const double kl = mean_reference_kl(samples, config.rl);
    row.set("rollout/kl", kl);
    row.set("train/ref_kl", kl);
  }
  if (rollout.is_generated) set_cached_tokens(samples, "rollout/", row);
  set_repetition(samples, "rollout/", row);
  if (!samples[0].weight_versions.empty())
    row.set("rollout/weight_version", static_cast<double>(samples[0].last_weight_version()));
  set_correct_lengths(samples, row);
  set_group_metrics(samples, row);
  if (rollout.num_drawn_groups == 0) return;
  row.set("rollout/dynamic_filter/num_drawn", static_cast<double>(rollout.num_drawn_groups));
  for (const auto& [reason, count] : rollout.drop_reasons)
    row.set("rollout/dynamic_filter/drop_" + reason, static_cast<double>(count));
}

}  // namespace slimexx::rl
