// `math`: our own grader. The answer that the response ends with against the label, as mathematics.
#include "reward/extract_answer.h"
#include "reward/graders.h"

namespace slimexx::reward {

Grade grade_math(const RewardInput& input) {
  Grade grade;
  const std::string label = read_label(input.label);
  const auto answer = extract_answer(input.response);
  if (label.empty()) return failed_grade("the label is empty", answer.value_or(""));
  if (!answer) {
    grade.reason =
        "the response gives no answer, or was cut off inside its thought or last \\boxed";
  } else {
    const Equality equality = compare_answers(label, *answer, {.equations_name_values = true});
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
