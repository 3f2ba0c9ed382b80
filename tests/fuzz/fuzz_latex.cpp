// Runs compare_answers and grade_math. The input is two answers, split at a zero byte or in the
// middle. Equality must be symmetric, and a text that is not blank must equal itself.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "reward/graders.h"

namespace reward = slimexx::reward;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t cut = text.find('\0');
  if (cut == std::string_view::npos) cut = size / 2;
  const std::string_view gold = text.substr(0, cut);
  const std::string_view answer = text.substr(cut < size && text[cut] == '\0' ? cut + 1 : cut);
  const reward::Equality there = reward::compare_answers(gold, answer);
  const reward::Equality back = reward::compare_answers(answer, gold);
  if (there.equal != back.equal || there.reason.empty()) std::abort();
  const reward::Equality self = reward::compare_answers(gold, gold);
  if (!self.equal && self.reason != "the reference is empty") std::abort();
  reward::RewardInput input;
  input.label = gold;
  input.response = answer;
  const reward::Grade grade = reward::grade_math(input);
  if (grade.reason.empty()) std::abort();
  return 0;
}
