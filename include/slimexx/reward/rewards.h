// Rewards: pure, thread-safe functions from a response and its label to a score with a reason. They
// never hang, crash or throw, whatever the input. If there is no score, for example because the
// grader cannot read the label, the grade says so.
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
  std::string prompt;    // as rendered for the model; empty if unknown
  std::string response;  // decoded text of the response tokens
  // As text; a JSON label that is not a string becomes its JSON text. A JSON list of strings holds
  // all accepted answers: the best grade counts.
  std::string label;
  std::shared_ptr<const Json> metadata;  // other keys of the prompt's row; may be null
  uint64_t seed = 0;                     // identifies this sample; only `random` uses it
};

// Prefix of a grade's reason if the response has no answer that the grader could read.
inline constexpr std::string_view kNoAnswer = "no answer: ";

struct Grade {
  double reward = 0;
  std::string reason;  // a short sentence for logs and tables
  // The grader has no score for this sample: the label cannot be graded, a limit of the grader was
  // reached, or the service never answered with a reward. `reward` and `values` are then undefined.
  bool failed = false;
  // The numbers that reward_key may choose from, such as dapo's score, acc.
  std::map<std::string, double> values;
  std::string prediction;  // the answer extracted from the response, if any
};

// Grades a batch: rule graders on the thread pool, `remote` by concurrent HTTP requests. Result i
// belongs to input i.
class Grader {
 public:
  virtual ~Grader() = default;
  // Throws Error(kRun) only if a remote service stays unreachable after all retries; a service that
  // answers, but never with a reward, gives a failed grade.
  virtual std::vector<Grade> grade(std::span<const RewardInput> inputs) = 0;
};

struct RewardInfo {
  std::string name, doc;
  std::string
      instead_of_boxed;  // why boxed_NAME does not exist, and the alternative; empty if it exists
};
const std::vector<RewardInfo>& list_rewards();

// Throws Error(kUsage) for an unknown rm_type (naming the nearest), a missing rm_url, or a
// reward_key that the grader does not give. The prefix "boxed_" replaces the response by the
// content of its last \boxed{}; it is refused for graders that search for marks outside of the box.
std::unique_ptr<Grader> make_grader(const RewardOptions& options);

// A row may name its own rm_type in its metadata. Throws Error(kInput), without a place, if that
// rm_type does not exist (naming the nearest).
void check_own_rm_type(const RewardInput& row);

// Grades the row's label as if it were the response, in the form that the grader reads. The label
// must earn the full reward.
struct LabelTrial {
  bool is_tried = false;  // false if the grader reads no labels: random, remote
  std::string fault;      // why no response can match this label; empty: the label can be read
};
LabelTrial try_label(const std::string& rm_type, const RewardInput& row);

}  // namespace slimexx::reward
