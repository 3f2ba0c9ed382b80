// What `train --dry-run` prints behind the banner, when everything is built.
#include <fmt/format.h>

#include "run_summary.h"
#include "training_run.h"

namespace slimexx::rl {

std::string describe_checks(const TrainingRun& run) {
  const auto& [progress, session, memory, trainer_side, rollout_side, grid, world, engine_grid] =
      run;
  std::string text = "checked\n  configuration  every key of it\n";
  const auto add = [&](const char* what, const std::string& how) {
    text += fmt::format("  {:<14} {}\n", what, how);
  };
  add("model", session.config.debug.random_weights ? "config.json; random weights"
                                                   : "config.json, and every tensor of it read");
  if (!trainer_side.reference_decoders.empty())
    add("reference", "every tensor read; the policy's vocabulary");
  if (rollout_side.prompts)
    add("prompts", fmt::format("{} rendered, tokenized, and short enough for the model with a full "
                               "response",
                               rollout_side.prompts->size()));
  for (const auto& set : rollout_side.eval_sets)
    add("evaluation", fmt::format("{}: {} prompts, likewise", set.name, set.prompts->size()));
  if (rollout_side.grader)
    add("reward", session.config.reward.rm_type + "; no response was graded");
  add("checkpoints", fmt::format("{} can be written; saved: {}", session.checkpoint_root,
                                 describe_saves(session.config, "")));
  if (!session.config.checkpoint.save_hf.empty())
    add("export", fmt::format("{} can be made", session.config.checkpoint.save_hf));
  if (progress.next_rollout > 0)
    add("resume", fmt::format("state of rollout {} restored", progress.next_rollout));
  add("not done", "no sample was generated, no step made");
  text.pop_back();
  return text;
}

}  // namespace slimexx::rl
