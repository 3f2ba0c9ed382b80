// The output of `train --dry-run` after the banner, when everything is built.
#include <fmt/format.h>

#include <algorithm>

#include "rl/training/run_summary.h"
#include "rl/training/training_run.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/reward/remote_service.h"

namespace slimexx::rl {
namespace {

constexpr const char* kIndent = "    ";

// The start and the end of a long text, each line indented.
std::string show_text(const std::string& text) {
  constexpr size_t kHalf = 1000;
  std::string shown = text;
  if (text.size() > 2 * kHalf)
    shown = fmt::format(
        "{}\n"
        "[{} bytes omitted]\n"
        "{}",
        text.substr(0, kHalf), text.size() - 2 * kHalf, text.substr(text.size() - kHalf));
  std::string out = kIndent;
  for (const char c : replace_invalid_utf8(shown))
    out += c == '\n' ? std::string("\n") + kIndent : std::string(1, c);
  return out + "\n";
}

std::string show_prompt(const data::Prompt& prompt) {
  const std::string label =
      prompt.label.empty() ? "no label" : fmt::format("label \"{}\"", prompt.label.substr(0, 200));
  return fmt::format("  the first prompt, {} tokens, {}:\n{}", prompt.tokens.size(), label,
                     show_text(prompt.text));
}

// The text of the tokens; trained parts are between marks.
std::string show_example(const data::SftExample& example, const text::Tokenizer& tokenizer) {
  constexpr const char* kMarks[] = {"\u27E7", "\u27E6"};  // ends, begins
  std::string text;
  uint8_t inside = 0;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    const uint8_t learnt = example.loss_mask[i] != 0;
    if (learnt != inside) text += kMarks[learnt];
    inside = learnt;
    text += tokenizer.token_bytes(example.tokens[i]);
  }
  if (inside) text += kMarks[0];
  return fmt::format(
      "  the first example, {} tokens; the {} trained tokens are between {} and {}:\n"
      "{}",
      example.tokens.size(),
      std::ranges::count_if(example.loss_mask, [](auto m) { return m != 0; }), kMarks[1], kMarks[0],
      show_text(text));
}

// The service may start after the run; the run waits for it.
std::string describe_service(const reward::RewardOptions& reward) {
  std::string text = reward.rm_type + "; no response was graded";
  if (reward.rm_url.empty()) return text;
  const std::string fault = reward::find_service_fault(reward.rm_url);
  if (fault.empty()) return text + fmt::format("; the service at {} responds", reward.rm_url);
  log_warn(
      "the reward service at {} cannot be reached: {}; start it before the run, or fix "
      "reward.rm_url",
      reward.rm_url, fault);
  return text + fmt::format("; the service at {} cannot be reached", reward.rm_url);
}

}  // namespace

std::string describe_checks(const TrainingRun& run) {
  const auto& [progress, session, memory, trainer_side, rollout_side, grid, world, engine_grid] =
      run;
  std::string text =
      "checked\n"
      "  configuration  every key\n";
  const auto add = [&](const char* what, const std::string& how) {
    text += fmt::format("  {:<14} {}\n", what, how);
  };
  add("model", session.config.debug.random_weights ? "config.json; random weights"
                                                   : "config.json, and all tensors read");
  for (const FrozenModel& frozen : trainer_side.frozen)
    add(frozen.options.name.c_str(), "all tensors read; same vocabulary as the policy");
  if (rollout_side.prompts) {
    add("prompts",
        fmt::format("{} rendered and tokenized; short enough for the model with a full response",
                    rollout_side.prompts->size()));
    text += show_prompt(rollout_side.prompts->prompts().front());
  } else if (session.config.is_sft() && session.config.debug.load_rollout.empty()) {
    const data::SftSet set =
        load_examples(session.config, rollout_side.text, rollout_side.stop_token_ids);
    add("examples",
        fmt::format("{} rendered and tokenized; short enough for the model", set.size()));
    text += show_example(set.examples().front(), *rollout_side.text.tokenizer);
  }
  for (const auto& set : rollout_side.eval_sets)
    add("evaluation",
        fmt::format("{}: {} prompts, checked in the same way", set.name, set.prompts->size()));
  for (const LabelTrials& trials : rollout_side.label_trials)
    if (trials.num_tried > 0) add("labels", trials.grader + ": " + describe_labels(trials));
  if (rollout_side.grader) add("reward", describe_service(session.config.reward));
  add("checkpoints", fmt::format("{} can be written; saved: {}", session.checkpoint_root,
                                 describe_saves(session.config, "")));
  if (!session.config.checkpoint.save_hf.empty())
    add("export", fmt::format("{} can be created", session.config.checkpoint.save_hf));
  if (progress.next_rollout > 0)
    add("resume", fmt::format("state of rollout {} restored", progress.next_rollout));
  add("not done", "no sample generated, no optimizer step made");
  text.pop_back();
  return text;
}

}  // namespace slimexx::rl
