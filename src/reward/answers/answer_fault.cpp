// Checks whether `math` can read a reference answer. A reference that `math` cannot read equals
// only identical text.
#include <algorithm>

#include "reward/graders.h"
#include "reward/latex/reading/lexer.h"
#include "reward/latex/reading/parser.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Texts that tables write for a missing value.
bool is_missing(std::string_view reference) {
  const std::string text = to_lower_ascii(trim(reference));
  return text == "nan" || text == "null" || text == "n/a";
}

// Whether the reference is a time or an option ("4:40 a.m.", "(C) Cecile"): comparable, but not an
// expression.
bool is_own_notation(std::string_view reference) {
  for (const char* probe : {"1:00", "(G) q", "(H) q"}) {
    const std::string reason = compare_answers(reference, probe).reason;
    if (reason == "different times" || reason == "the same time" || reason == "different options")
      return true;
  }
  return false;
}

// Whether the reference is a sentence with a number, which is not an answer: "She sold 72 clips, so
// the answer is 72".
bool is_sentence(std::string_view reference) {
  static constexpr std::string_view kWords[] = {
      "is",      "are",     "was",   "were",   "so",    "we",    "it",        "its",
      "she",     "he",      "they",  "has",    "have",  "had",   "there",     "answer",
      "answers", "because", "since", "sold",   "thus",  "hence", "therefore", "total",
      "ans",     "final",   "gets",  "equals", "costs", "spent"};
  const std::string text = to_lower_ascii(reference);
  if (text.find_first_of("0123456789") == text.npos) return false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '.' && at > 0 && is_digit(text[at - 1]) && at + 2 < text.size() &&
        text[at + 1] == ' ' && is_letter(text[at + 2]) && !is_letter(reference[at + 2]))
      return true;  // "2+2=4. Step 2"
    if (!is_letter(text[at])) continue;
    const size_t begin = at;
    while (at < text.size() && is_letter(text[at])) ++at;
    const std::string_view word = std::string_view(text).substr(begin, at - begin);
    const bool is_command = begin > 0 && text[begin - 1] == '\\';
    if (!is_command && std::ranges::find(kWords, word) != std::end(kWords)) return true;
  }
  return false;
}

}  // namespace

std::string find_answer_fault(std::string_view reference) {
  using latex::CommaMode;
  if (is_missing(reference)) return "the label stands for a missing value";
  if (is_sentence(reference)) return "the label is a sentence, not an answer";
  std::string first;
  for (const CommaMode mode : {CommaMode::kList, CommaMode::kThousands, CommaMode::kDecimal}) {
    std::string why;
    if (latex::parse_answer(latex::tokenize(reference, mode), &why)) return "";
    if (first.empty()) first = why;
  }
  if (is_own_notation(reference)) return "";
  return "the label cannot be read as an answer (" + first + ")";
}

}  // namespace slimexx::reward
