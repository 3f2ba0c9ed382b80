#include "rl/generation/label_trial.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/error.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::rl {
namespace {

constexpr size_t kExamples = 3;

reward::RewardInput input_of(const data::Prompt& prompt) {
  return {.prompt = prompt.text,
          .response = "",
          .label = prompt.label,
          .metadata = prompt.metadata,
          .seed = 0};
}

}  // namespace

LabelTrials try_labels(const data::PromptSet& prompts, const reward::RewardOptions& options) {
  LabelTrials trials;
  trials.grader = options.rm_type;
  trials.num_rows = prompts.size();
  const int64_t count = trials.num_looked_at = std::min(prompts.size(), kMostTried);
  const auto prompt_at = [&](int64_t i) -> const data::Prompt& {
    return prompts.prompts()[static_cast<size_t>(i * prompts.size() / count)];
  };
  std::vector<reward::LabelTrial> results(static_cast<size_t>(count));
  parallel_for(count, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      results[static_cast<size_t>(i)] = reward::try_label(options.rm_type, input_of(prompt_at(i)));
  });
  for (int64_t i = 0; i < count; ++i) {
    const reward::LabelTrial& result = results[static_cast<size_t>(i)];
    trials.num_tried += result.is_tried;
    if (result.fault.empty()) continue;
    ++trials.num_unread;
    if (trials.examples.size() < kExamples)
      trials.examples.push_back({prompts.where(prompt_at(i)), result.fault});
  }
  return trials;
}

void check_labels(const LabelTrials& trials, const reward::RewardOptions& options) {
  if (trials.num_unread == 0) return;
  const LabelTrials::Fault& first = trials.examples.front();
  if (trials.num_unread == trials.num_looked_at) {
    throw Error(ErrorCode::kInput,
                fmt::format("the grader {} cannot read any of the {} labels: {}", trials.grader,
                            trials.num_tried, first.why),
                "set data.label_key to the key of the answers, or reward.rm_type to another "
                "grader: docs/howto/reward.md says which labels each reads",
                first.where);
  }
  if (options.on_failure != "stop") return;
  throw Error(ErrorCode::kInput,
              fmt::format("the grader {} cannot read {} of {} labels: {}", trials.grader,
                          trials.num_unread, trials.num_tried, first.why),
              "fix the labels, or remove the rows; reward.on_failure: mask leaves them out",
              first.where);
}

std::string describe_labels(const LabelTrials& trials) {
  if (trials.num_tried == 0) return "";
  const std::string of_rows = trials.num_tried == trials.num_rows
                                  ? ""
                                  : fmt::format(" that were tried, of {} rows", trials.num_rows);
  if (trials.num_unread == 0) return fmt::format("{} labels{} read", trials.num_tried, of_rows);
  std::string text = fmt::format(
      "{} of {} labels{} ({:.3g} %) cannot be read by {}", trials.num_unread, trials.num_tried,
      of_rows, 100 * static_cast<double>(trials.num_unread) / static_cast<double>(trials.num_tried),
      trials.grader);
  const char* joint = ": ";
  for (const LabelTrials::Fault& fault : trials.examples) {
    text += fmt::format("{}{}: {}", joint, fault.where, fault.why);
    joint = "; ";
  }
  return text;
}

}  // namespace slimexx::rl
