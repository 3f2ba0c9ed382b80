// The graders of rewards.h, one function and one file each: deepscaler.cpp, dapo.cpp, math.cpp ....
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "slimexx/reward/rewards.h"

namespace slimexx::reward {

Grade grade_deepscaler(const RewardInput& input);
Grade grade_dapo(const RewardInput& input);
Grade grade_gsm8k(const RewardInput& input);
Grade grade_math(const RewardInput& input);
Grade grade_gpqa(const RewardInput& input);
Grade grade_f1(const RewardInput& input);
Grade grade_random(const RewardInput& input);

// The label as a response in the form that the grader reads; it earns the full reward.
std::string give_deepscaler(const RewardInput& input);
std::string give_dapo(const RewardInput& input);
std::string give_gsm8k(const RewardInput& input);
std::string give_math(const RewardInput& input);
std::string give_gpqa(const RewardInput& input);

// A grade without a score.
inline Grade failed_grade(std::string reason, std::string prediction = "") {
  Grade grade;
  grade.reason = std::move(reason);
  grade.failed = true;
  grade.prediction = std::move(prediction);
  return grade;
}

// boxed.cpp: content of the last \boxed{...} (or \fbox{...}) with matched braces.
std::optional<std::string> last_boxed(std::string_view text);

// answer_equality.cpp: decides for `math` whether two answers, LaTeX or plain text, are
// mathematically equal. `reason` names the rule, or the difference.
struct Equality {
  bool equal = false;
  std::string reason;
  bool undecided = false;  // not equal so far, and the step limit was reached
};
struct EqualityRules {
  bool converts_units = true;          // 0.5 equals 50\%, and pi/4 equals 45^\circ, as 50 and 45 do
  bool equations_name_values = false;  // m + n = 293 answers 293 (named_value in latex/forms.h)
};
Equality compare_answers(std::string_view gold, std::string_view prediction,
                         const EqualityRules& rules = {});

// answer_fault.cpp: why `math` can match this reference answer only with identical text; empty if
// `math` can read the answer.
std::string find_answer_fault(std::string_view reference);

// extract_answer.cpp: the final answer in free text: last \boxed{}, "answer is ...", "####", last
// formula, last number; nullopt if there is none.
std::optional<std::string> extract_answer(std::string_view response);

}  // namespace slimexx::reward
