// `math`: our own grader. Compares the final answer of the response with the label as mathematics.
#include <algorithm>

#include "reward/answers/extract_answer.h"
#include "reward/graders.h"
#include "reward/latex/reading/lexer.h"

namespace slimexx::reward {
namespace {

// Labels of GSM8K are solutions that end with "#### 72".
std::string answer_of_label(std::string_view label) {
  constexpr std::string_view kMark = "####";
  if (const size_t mark = label.rfind(kMark); mark != label.npos)
    label.remove_prefix(mark + kMark.size());
  return read_label(label);
}

bool has_letters(std::string_view label) {
  const auto tokens = latex::tokenize(label, latex::CommaMode::kList);
  return std::any_of(tokens.begin(), tokens.end(), [](const latex::Token& token) {
    return token.kind == latex::Token::kName && token.text != "pi";
  });
}

// "12 m" is a product if the answer is algebraic, but a length if the label has no letters.
Equality compare_with_label(const std::string& label, const std::string& answer) {
  constexpr EqualityRules kRules{.equations_name_values = true};
  const Equality equality = compare_answers(label, answer, kRules);
  if (equality.equal || has_letters(label)) return equality;
  const auto upright = latex::with_upright_unit(answer);
  return upright ? compare_answers(label, *upright, kRules) : equality;
}

}  // namespace

Grade grade_math(const RewardInput& input) {
  Grade grade;
  const std::string label = answer_of_label(input.label);
  const auto answer = extract_answer(input.response);
  grade.prediction = answer.value_or("");
  if (label.empty()) return failed_grade("the label is empty", grade.prediction);
  const Equality equality = answer ? compare_with_label(label, *answer) : Equality{};
  if (equality.undecided) return failed_grade(equality.reason, grade.prediction);
  if (const std::string fault = equality.equal ? "" : find_answer_fault(label); !fault.empty())
    return failed_grade(fault, grade.prediction);
  grade.reward = equality.equal ? 1 : 0;
  grade.reason =
      answer ? equality.reason
             : std::string(kNoAnswer) +
                   "the response gives none, or was truncated inside its reasoning or last \\boxed";
  grade.values["score"] = grade.reward;
  grade.values["acc"] = grade.reward;
  return grade;
}

std::string give_math(const RewardInput& input) {
  return "\\boxed{" + answer_of_label(input.label) + "}";
}

}  // namespace slimexx::reward
