// What `train --dry-run` prints behind the banner, when everything is built.
#include <fmt/format.h>

#include "training_run.h"

namespace slimexx::rl {

std::string TrainingRun::describe_checks() const {
  std::string text = "checked\n  configuration  every key of it\n";
  const auto add = [&](const char* what, const std::string& how) {
    text += fmt::format("  {:<14} {}\n", what, how);
  };
  add("model", config_.debug.random_weights ? "config.json; random weights"
                                            : "config.json, and every tensor of it read");
  if (reference_.store) add("reference", "every tensor read; the policy's vocabulary");
  if (reference_is_transient_)
    add("reference",
        "config.json; the policy's vocabulary; its tensors are read when they are needed");
  if (prompts_)
    add("prompts", fmt::format("{} rendered, tokenized, and short enough for the model with a full "
                               "response",
                               prompts_->size()));
  for (const auto& set : eval_sets_)
    add("evaluation", fmt::format("{}: {} prompts, likewise", set.name, set.prompts->size()));
  if (grader_) add("reward", config_.reward.rm_type + "; no response was graded");
  add("checkpoints", fmt::format("{} can be written", root_of_checkpoints_));
  if (!config_.checkpoint.save_hf.empty())
    add("export", fmt::format("{} can be made", config_.checkpoint.save_hf));
  if (next_rollout_ > 0) add("resume", fmt::format("state of rollout {} restored", next_rollout_));
  add("not done", "no sample was generated, no step made");
  text.pop_back();
  return text;
}

}  // namespace slimexx::rl
