// The lengths that a plan uses: from the run's data if readable, otherwise assumed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/rl/plan.h"

namespace slimexx::rl {

struct LengthPlan {
  PlannedLengths lengths;
  int64_t longest_generated = 0;   // as in training_run.h
  int64_t num_sampled_tokens = 0;  // size of the tokenizer's vocabulary
  std::vector<std::string> notes;  // the assumptions
};
// `cp`: ranks that share a microbatch's tokens. Throws Error(kUsage) if a sequence is longer than
// the model's positions.
LengthPlan plan_lengths(const PlanRequest& request, const model::ModelSpec& spec, int cp);

}  // namespace slimexx::rl
