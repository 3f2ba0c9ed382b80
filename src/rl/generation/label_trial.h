// Tries the labels of a set of prompts on their grader when a run starts. If the grader cannot read
// a label, no response to that prompt can be right.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/data/prompts.h"
#include "slimexx/reward/rewards.h"

namespace slimexx::rl {

struct LabelTrials {
  std::string grader;
  int64_t num_rows = 0;
  int64_t num_looked_at = 0;  // at most kMostTried, spread over the rows
  int64_t num_tried = 0;   // of those looked at; the other rows have a grader that reads no label
  int64_t num_unread = 0;  // of those that were tried
  struct Fault {
    std::string where;  // "path:line"
    std::string why;
  };
  std::vector<Fault> examples;  // the first unreadable labels
};
inline constexpr int64_t kMostTried = 100'000;

LabelTrials try_labels(const data::PromptSet& prompts, const reward::RewardOptions& options);

// Throws Error(kInput) at the first unreadable label if no row can be graded, or if on_failure is
// stop.
void check_labels(const LabelTrials& trials, const reward::RewardOptions& options);

// "8 labels read", "3 of 8 labels (37.5 %) cannot be read: p.jsonl:2: ...; ..."; empty if none was
// tried.
std::string describe_labels(const LabelTrials& trials);

}  // namespace slimexx::rl
