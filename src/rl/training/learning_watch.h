// Signs, in the samples of a rollout, that the run learns nothing.
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
  int64_t num_graded = 0;       // the others' grader failed
  int64_t num_groups = 0;       // of graded samples
  int64_t num_flat_groups = 0;  // whose samples all have one reward
  double flat_reward = 0;       // of the first of them
  bool has_advantage = false;   // a token that is trained has one that is not 0
  int64_t num_trained_tokens = 0;
  int64_t num_truncated = 0;
  int64_t num_without_answer = 0;  // the grader found no answer in them
  std::string reason, response;    // of the first of these
  std::optional<double> entropy;   // of the policy, mean over trained tokens
};
LearningSigns find_signs(std::span<const Sample> samples, std::optional<double> entropy);

struct LearningFault {
  std::string name;  // "no_advantage", "no_answer", "all_truncated", "no_entropy"
  std::string what;
};
std::vector<LearningFault> find_learning_faults(const LearningSigns& signs);

// What is to be said of them: after the rollout that first shows a fault, and at each tenth
// afterwards.
class LearningWatch {
 public:
  std::vector<std::string> choose_due(int64_t rollout, const std::vector<LearningFault>& faults);

 private:
  std::map<std::string, int64_t> last_said_;  // by name: the rollout
};

}  // namespace slimexx::rl
