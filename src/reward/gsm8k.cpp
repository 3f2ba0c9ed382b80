// `gsm8k`: compares one number. In the response it is the number after the last "####", otherwise
// the last number, as in lm-evaluation-harness ("flexible-extract") and verl. The label is a
// number, or a solution that ends with "#### 72", as in the data set.
#include <fmt/core.h>

#include "reward/answers/text_scan.h"
#include "reward/graders.h"

namespace slimexx::reward {
namespace {

constexpr std::string_view kMark = "####";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether the sign at `at` joins the digits around it: in 3/4, 10^2, 3:4, 1,200, 7.5, 2e5 the last
// number does not stand alone. The 4 in "3,4" does.
bool binds(std::string_view text, size_t at) {
  if (at + 1 >= text.size() || at == 0 || !is_digit(text[at + 1]) || !is_digit(text[at - 1]))
    return false;
  if (text[at] != ',') return std::string_view("/^:.eE").find(text[at]) != std::string_view::npos;
  size_t end = at + 1;
  while (end < text.size() && end <= at + 4 && is_digit(text[end])) ++end;
  return end == at + 4;
}

// Whether the digits are a part of something else: ".5", or the 4 in "\frac{3}{4}".
bool is_cut_off(std::string_view text, size_t begin) {
  if (begin == 0) return false;
  if (text[begin - 1] == '{') return begin > 1 && text[begin - 2] == '}';
  if (text[begin - 1] != '.') return false;
  return begin == 1 || std::string_view(" $-(").find(text[begin - 2]) != std::string_view::npos;
}

// Length of the sign before the digits at `begin`: 0 if there is none, or if it is a hyphen or a
// minus between two numbers.
size_t sign_length(std::string_view text, size_t begin) {
  size_t sign = begin;
  if (sign > 0 && text[sign - 1] == '$') --sign;
  size_t length = 0;
  if (sign > 0 && text[sign - 1] == '-') length = 1;
  if (sign > 2 && text.substr(sign - 3, 3) == "\xe2\x88\x92") length = 3;  // U+2212
  if (length == 0) return 0;
  if (sign == length) return begin - sign + length;
  const char before = text[sign - length - 1];
  const bool is_operator =
      is_digit(before) || is_letter(before) || before == ')' || before == '-' || before == '}';
  return is_operator ? 0 : begin - sign + length;
}

// The number whose digits begin at `begin`, in canonical form: "1,200.50" is "1200.5". nullopt if
// the digits are a part of something else.
std::optional<std::string> number_at(std::string_view text, size_t begin, size_t end) {
  std::string digits(text.substr(begin, end - begin));
  std::erase(digits, ',');
  if (digits.find_first_of("/^:eE") != digits.npos || is_cut_off(text, begin)) return std::nullopt;
  const size_t point = digits.find('.');
  if (point != digits.npos && digits.find('.', point + 1) != digits.npos) return std::nullopt;
  if (point != digits.npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  if (digits[0] == '.') digits.insert(0, "0");
  const bool is_negative = sign_length(text, begin) > 0 && digits != "0";
  return is_negative ? "-" + digits : digits;
}

struct Number {
  size_t begin = 0, end = 0;  // of the digits
};

std::optional<Number> first_digits(std::string_view text) {
  const size_t begin = text.find_first_of("0123456789");
  if (begin == text.npos) return std::nullopt;
  size_t end = begin + 1;
  while (end < text.size() && (is_digit(text[end]) || binds(text, end))) ++end;
  return Number{begin, end};
}

std::optional<Number> last_digits(std::string_view text) {
  const size_t last = text.find_last_of("0123456789");
  if (last == text.npos) return std::nullopt;
  size_t begin = last;
  while (begin > 0 && (is_digit(text[begin - 1]) || binds(text, begin - 1))) --begin;
  return Number{begin, last + 1};
}

// The number after the last "####", on the same line.
std::optional<std::string> marked_number(std::string_view text) {
  const size_t mark = text.rfind(kMark);
  if (mark == text.npos) return std::nullopt;
  std::string_view line = text.substr(mark + kMark.size());
  line = line.substr(0, line.find('\n'));
  const auto digits = first_digits(line);
  return digits ? number_at(line, digits->begin, digits->end) : std::nullopt;
}

std::optional<std::string> last_number(std::string_view text) {
  const auto digits = last_digits(text);
  return digits ? number_at(text, digits->begin, digits->end) : std::nullopt;
}

// A label without "####" must be just a number, except for its sign, $ and %.
std::optional<std::string> number_of_label(std::string_view label) {
  if (label.find(kMark) != label.npos) return marked_number(label);
  const std::string_view text = trim_space(label);
  const auto digits = first_digits(text);
  if (!digits) return std::nullopt;
  const std::string_view before = text.substr(0, digits->begin);
  const std::string_view after = text.substr(digits->end);
  const bool is_whole = (before.empty() || before == "$" || before == "-" || before == "+" ||
                         before == "-$" || before == "$-" || before == "\xe2\x88\x92") &&
                        (after.empty() || after == "." || after == "%" || after == "$");
  return is_whole ? number_at(text, digits->begin, digits->end) : std::nullopt;
}

}  // namespace

Grade grade_gsm8k(const RewardInput& input) {
  const auto label = number_of_label(input.label);
  if (!label) {
    return failed_grade(
        fmt::format("the label '{}' is not a number and has none after ####, which gsm8k needs",
                    shorten(input.label)));
  }
  Grade grade;
  grade.values = {{"strict", 0.0}};
  if (is_unfinished_thought(input.response)) {
    grade.reason = std::string(kNoAnswer) + "the response never leaves <think>";
    return grade;
  }
  const std::string_view text = after_reasoning(input.response);
  const auto marked = marked_number(text);
  const auto answer = marked ? marked : last_number(text);
  if (!answer) {
    grade.reason = std::string(kNoAnswer) + "the response has no number";
    return grade;
  }
  const bool equal = *answer == *label;
  grade.reward = equal ? 1 : 0;
  grade.values["strict"] = equal && marked ? 1 : 0;
  grade.prediction = *answer;
  grade.reason = fmt::format("{} {}, label {}", marked ? "####" : "the last number is",
                             shorten(*answer), shorten(*label));
  return grade;
}

std::string give_gsm8k(const RewardInput& input) {
  return "#### " + number_of_label(input.label).value_or(input.label);
}

}  // namespace slimexx::reward
