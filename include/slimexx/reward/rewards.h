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
#include "slimexx/reward/options.h"

namespace slimexx::reward {

struct RewardInput {
  std::string prompt;    // as rendered for the model; empty where unknown
  std::string response;  // decoded text of the response tokens
  // As text; of a JSON label that is not a string its JSON. A JSON list of strings has all answers
  // that are accepted: the best grade counts.
  std::string label;
  std::shared_ptr<const Json> metadata;  // other keys of the prompt's row; may be null
  uint64_t seed = 0;                     // names this sample; only `random` looks at it
};

// How the reason of a grade begins where the response has no answer that the grader could read.
inline constexpr std::string_view kNoAnswer = "no answer: ";

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
  std::string instead_of_boxed;  // why there is no boxed_NAME, and what to take; else empty
};
const std::vector<RewardInfo>& list_rewards();

// Throws Error(kUsage) for an unknown rm_type (naming the nearest), a missing rm_url, or a
// reward_key that the grader does not give. The prefix "boxed_" replaces the response by the
// content of its last \boxed{} first; it is refused where the grader looks for marks outside of it.
std::unique_ptr<Grader> make_grader(const RewardOptions& options);

// A row may name its own rm_type in its metadata. Throws Error(kInput), without a place, for one
// that there is not (naming the nearest).
void check_own_rm_type(const RewardInput& row);

// Grades the row's label as the response, in the form that its grader reads, which must earn the
// full reward.
struct LabelTrial {
  bool is_tried = false;  // not where the grader reads no label of ours: random, remote
  std::string fault;      // why no response can be right by this label; empty: it can be read
};
LabelTrial try_label(const std::string& rm_type, const RewardInput& row);

}  // namespace slimexx::reward
