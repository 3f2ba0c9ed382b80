// Rewards: pure, thread-safe functions from a response and its label to a score with a reason. They
// are total: no input makes one hang, crash or throw; where there is no score, as for a label that
// a grader cannot read, the grade says so.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::reward {

struct RewardInput {
  std::string prompt;                    // as rendered for the model; empty where unknown
  std::string response;                  // decoded text of the response tokens
  std::string label;                     // as text; of a JSON label that is not a string, its JSON
  std::shared_ptr<const Json> metadata;  // other keys of the prompt's row; may be null
  uint64_t seed = 0;                     // names this sample; only `random` looks at it
};

struct Grade {
  double reward = 0;
  std::string reason;  // a short sentence for logs and tables
  // The grader has no score for this sample: the label cannot be graded, one of the grader's own
  // limits was reached, or the service never answered with a reward. `reward` and `values` then
  // have no meaning.
  bool failed = false;
  // The numbers that reward_key may choose from, such as dapo's score, acc.
  std::map<std::string, double> values;
  std::string prediction;  // the answer that was read off the response, if any
};

struct RewardOptions {
  std::string rm_type;     // has no default: each grader wants responses of another form
  std::string reward_key;  // takes values[reward_key] as the reward; empty: the grader's own
  std::string rm_url;      // of `remote`
  double rm_timeout_s = 120;
  int64_t rm_retries = 10;
  int64_t rm_max_connections = 64;
  std::string on_failure = "mask";  // what a run does with a failed grade: stop or mask
};

// Grades a batch: rule graders on the thread pool, `remote` by concurrent HTTP requests. Result i
// belongs to input i.
class Grader {
 public:
  virtual ~Grader() = default;
  // Throws Error(kRun) only where a remote service stays unreachable after all retries; a service
  // that answers, but never with a reward, gives a failed grade.
  virtual std::vector<Grade> grade(std::span<const RewardInput> inputs) = 0;
};

struct RewardInfo {
  std::string name, doc;
};
const std::vector<RewardInfo>& list_rewards();

// Throws Error(kUsage) for an unknown rm_type (naming the nearest), a missing rm_url, or a
// reward_key that the grader does not give. The prefix "boxed_" replaces the response by the
// content of its last \boxed{} first.
std::unique_ptr<Grader> make_grader(const RewardOptions& options);

// A row may name its own rm_type in its metadata. Throws Error(kInput), without a place, for one
// that there is not (naming the nearest).
void check_own_rm_type(const RewardInput& row);

}  // namespace slimexx::reward
