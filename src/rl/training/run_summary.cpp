#include "rl/training/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace slimexx::rl {

std::string describe_batch(const RunConfig& config) {
  if (config.is_sft())
    return fmt::format("{} conversations per optimizer step", config.global_batch_size);
  if (!config.debug.load_rollout.empty() && config.num_steps_per_rollout == 0)
    return fmt::format("steps of global_batch_size {} from a dump", config.global_batch_size);
  if (!config.debug.load_rollout.empty() && config.global_batch_size == 0)
    return fmt::format("a dump split into {} optimizer steps", config.num_steps_per_rollout);
  const std::string steps = fmt::format("global_batch_size {} * num_steps_per_rollout {}",
                                        config.global_batch_size, config.num_steps_per_rollout);
  if (!config.debug.load_rollout.empty()) return steps;
  const RolloutOptions& r = config.rollout;
  std::string filter;
  if (!r.dynamic_sampling_filter_path.empty())
    filter = fmt::format(", kept by {} from draws of {} prompts", r.dynamic_sampling_filter_path,
                         r.over_sampling_batch_size.value_or(r.rollout_batch_size));
  return fmt::format("rollout_batch_size {} * n_samples_per_prompt {} = {}{}", r.rollout_batch_size,
                     r.n_samples_per_prompt, steps, filter);
}

std::string describe_saves(const RunConfig& config, const std::string& root) {
  const auto& interval = config.checkpoint.save_interval;
  const std::string to = root.empty() ? "" : ", to " + root;
  if (interval == 0)
    return fmt::format(
        "nothing at the end of the run, because checkpoint.save_interval is 0{}; a signal or an "
        "error that stops the run saves its state{}",
        config.checkpoint.save_hf.empty() ? "" : " (the weights go to checkpoint.save_hf)", to);
  if (!interval) return "the final state" + to;
  return fmt::format("every {} rollout{}, and the final state{}", *interval,
                     *interval == 1 ? "" : "s", to);
}

const char* name_length_key(const RunConfig& config) {
  if (config.rollout.num_rollout || !config.debug.load_rollout.empty())
    return "rollout.num_rollout";
  return config.is_sft() && !config.rollout.num_epoch ? "train.num_sft_epochs"
                                                      : "rollout.num_epoch";
}

std::vector<std::string> describe_taken_keys(const RunConfig& config) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const config::TakenKey& key : config.taken_keys) {
    auto found =
        std::ranges::find(by_reason, key.why, [](const auto& entry) { return entry.first; });
    if (found == by_reason.end()) found = by_reason.insert(found, {key.why, {}});
    found->second.push_back(key.path);
  }
  std::vector<std::string> lines;
  for (const auto& [why, keys] : by_reason)
    lines.push_back(fmt::format("{} {} no effect: {}", fmt::join(keys, ", "),
                                keys.size() == 1 ? "has" : "have", why));
  return lines;
}

std::string describe_truncated_sampling(const RunConfig& config) {
  const RolloutOptions& r = config.rollout;
  if (config.is_sft() || !config.debug.load_rollout.empty()) return "";
  std::string set;
  const auto add = [&](bool truncates, const std::string& text) {
    if (truncates) set += (set.empty() ? "" : ", ") + text;
  };
  add(r.rollout_top_p < 1, fmt::format("rollout_top_p {}", r.rollout_top_p));
  add(r.rollout_top_k > 0, fmt::format("rollout_top_k {}", r.rollout_top_k));
  add(r.rollout_min_p > 0, fmt::format("rollout_min_p {}", r.rollout_min_p));
  if (set.empty()) return "";
  return set +
         ": samples come from a truncated distribution, but their log-probs are those before "
         "truncation. So the sampling policy differs from the old policy in the loss.";
}

}  // namespace slimexx::rl
