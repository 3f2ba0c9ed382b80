// `deepscaler`: compares the boxed answer after the reasoning with the label, by form or by value.
// The name, and the part of the response that counts, come from the DeepScaleR recipe.
#include <fmt/core.h>

#include "reward/answers/text_scan.h"
#include "reward/deepscaler/deepscaler_equality.h"
#include "reward/graders.h"

namespace slimexx::reward {
namespace {

Grade no_answer(const std::string& reason) {
  Grade grade;
  grade.reason = std::string(kNoAnswer) + reason;
  return grade;
}

// The part of the response to grade: after the last </think>, otherwise between the first and the
// second "###Response".
std::optional<std::string_view> find_answer_part(std::string_view response) {
  if (response.find("</think>") != response.npos) return after_reasoning(response);
  constexpr std::string_view kMarker = "###Response";
  const size_t marker = response.find(kMarker);
  if (marker == response.npos) return std::nullopt;
  const std::string_view rest = response.substr(marker + kMarker.size());
  return rest.substr(0, rest.find(kMarker));
}

}  // namespace

Grade grade_deepscaler(const RewardInput& input) {
  std::string truth = input.label;
  if (input.label.empty()) return failed_grade("the label is empty");
  if (contains(input.label, kBoxed) && !read_final_box(input.label, truth))
    return failed_grade("the label has a \\boxed without its braces");
  const auto part = find_answer_part(input.response);
  std::string given;
  const bool has_box = part && read_final_box(*part, given);
  Equality equality;
  if (has_box) equality = compare_mathd(truth, given);
  if (has_box && !equality.equal) equality = compare_sympy(truth, given);
  if (equality.undecided) return failed_grade(equality.reason, given);
  if (const std::string fault = equality.equal ? "" : find_answer_fault(truth); !fault.empty())
    return failed_grade(fault, given);
  if (!part) {
    return no_answer(
        "no </think> and no ###Response in the response; for a model without a reasoning block use "
        "rm_type math");
  }
  if (!has_box) return no_answer("no complete \\boxed{} after the reasoning");
  Grade grade;
  grade.reward = equality.equal ? 1 : 0;
  grade.reason = fmt::format("{}: {}", equality.equal ? "equal" : "not equal", equality.reason);
  grade.prediction = std::move(given);
  return grade;
}

std::string give_deepscaler(const RewardInput& input) {
  std::string answer = input.label;
  read_final_box(input.label, answer);
  return "</think> \\boxed{" + answer + "}";
}

}  // namespace slimexx::reward
