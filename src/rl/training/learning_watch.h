// Examines the samples of a rollout for signs of a run that learns nothing.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slimexx/sample/sample.h"

namespace slimexx::rl {

using sample::Sample;

struct LearningSigns {
  int64_t num_samples = 0;
  int64_t num_graded = 0;       // for the other samples the grader failed
  int64_t num_groups = 0;       // of graded samples
  int64_t num_flat_groups = 0;  // groups whose samples all have the same reward
  double flat_reward = 0;       // the reward of the first such group
  bool has_advantage = false;   // some trained token has a nonzero advantage
  int64_t num_trained_tokens = 0;
  int64_t num_truncated = 0;
  int64_t num_without_answer = 0;     // samples in which the grader found no answer
  std::string reason, response;       // of the first such sample
  std::optional<double> entropy;      // of the policy, mean over trained tokens
  std::optional<double> fp8_changed;  // train/fp8_changed
};
LearningSigns find_signs(std::span<const Sample> samples, std::optional<double> entropy);

struct LearningFault {
  std::string name;  // "no_advantage", "no_answer", "all_truncated", "no_entropy", "fp8_unchanged"
  std::string what;
};
std::vector<LearningFault> find_learning_faults(const LearningSigns& signs);

// Chooses which faults to report: after the rollout that first shows a fault, and after every tenth
// rollout from then on.
class LearningWatch {
 public:
  std::vector<std::string> choose_due(int64_t rollout, const std::vector<LearningFault>& faults);

 private:
  std::map<std::string, int64_t> last_said_;  // rollout of the last report, by name
};

}  // namespace slimexx::rl
