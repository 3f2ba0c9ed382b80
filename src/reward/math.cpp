// `math`: our own grader. The answer that the response ends with against the label, as mathematics.
#include <algorithm>

#include "reward/extract_answer.h"
#include "reward/graders.h"
#include "reward/latex/lexer.h"

namespace slimexx::reward {
namespace {

bool has_letters(std::string_view label) {
  const auto tokens = latex::tokenize(label, latex::CommaMode::kList);
  return std::any_of(tokens.begin(), tokens.end(), [](const latex::Token& token) {
    return token.kind == latex::Token::kName && token.text != "pi";
  });
}

}  // namespace

Grade grade_math(const RewardInput& input) {
  Grade grade;
  const std::string label = read_label(input.label);
  const auto answer = extract_answer(input.response);
  if (label.empty()) return failed_grade("the label is empty", answer.value_or(""));
  if (!answer) {
    grade.reason =
        "the response gives no answer, or was cut off inside its thought or last \\boxed";
  } else {
    constexpr EqualityRules kRules{.equations_name_values = true};
    Equality equality = compare_answers(label, *answer, kRules);
    if (!equality.equal && !has_letters(label)) {
      if (const auto upright = latex::with_upright_unit(*answer)) {
        equality = compare_answers(label, *upright, kRules);
      }
    }
    if (equality.undecided) return failed_grade(equality.reason, *answer);
    grade.reward = equality.equal ? 1 : 0;
    grade.reason = equality.reason;
    grade.prediction = *answer;
  }
  grade.values["score"] = grade.reward;
  grade.values["acc"] = grade.reward;
  return grade;
}

}  // namespace slimexx::reward
