#include "reward/deepscaler/deepscaler_equality.h"

#include <fmt/core.h>

#include "reward/answers/answer_forms.h"
#include "reward/answers/decimal_text.h"
#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

constexpr size_t kMaxExpressionBytes = 2000;  // longer answers are equal only if their forms are

bool has_brackets(std::string_view form) { return form.find_first_of("()[]") != form.npos; }

// The elements of "1,2,3". For a set, or text with brackets, the text alone: its commas need not
// separate answers.
std::vector<std::string> split_list(const std::string& text, std::string_view raw) {
  if (has_brackets(text) || raw.find("\\{") != raw.npos) return {text};
  std::vector<std::string> elements;
  std::string_view rest(text);
  for (;;) {
    const size_t comma = rest.find(',');
    elements.emplace_back(rest.substr(0, comma));
    if (comma == rest.npos) return elements;
    rest.remove_prefix(comma + 1);
  }
}

// Whether the text has a number such as "3 1/2": mathd forms drop the blank, which makes it 31/2.
bool has_mixed_number(std::string_view text) {
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    if (!is_digit(text[i]) || text[i + 1] != ' ') continue;
    size_t next = i + 1;
    while (next < text.size() && text[next] == ' ') ++next;
    const size_t digits = next;
    while (next < text.size() && is_digit(text[next])) ++next;
    if (next > digits && next < text.size() && text[next] == '/') return true;
  }
  return false;
}

Equality compare_elements(const std::string& truth, const std::string& given) {
  if (truth == given) return {true, fmt::format("'{}' in both", shorten(given))};
  const auto truth_integer = integer_text_with_commas(truth);
  const auto given_integer = integer_text_with_commas(given);
  if (truth_integer.has_value() != given_integer.has_value()) {
    return {false, fmt::format("one of '{}' and '{}' is a plain integer, the other is not",
                               shorten(given), shorten(truth))};
  }
  if (truth_integer) {
    return {*truth_integer == *given_integer,
            fmt::format("integers {} and {}", shorten(*given_integer), shorten(*truth_integer))};
  }
  return compare_answers(truth, given, {.converts_units = false});
}

Equality compare_each(const std::vector<std::string>& truth,
                      const std::vector<std::string>& given) {
  Equality last;
  for (size_t i = 0; i < truth.size(); ++i) {
    last = compare_elements(truth[i], given[i]);
    if (last.equal) continue;
    if (truth.size() > 1) last.reason = fmt::format("element {}: {}", i + 1, last.reason);
    return last;
  }
  return last;
}

}  // namespace

Equality compare_mathd(std::string_view truth, std::string_view given) {
  const std::string truth_form = mathd_form(truth);
  const std::string given_form = mathd_form(given);
  return {truth_form == given_form && has_mixed_number(truth) == has_mixed_number(given),
          fmt::format("normal forms '{}' and '{}'", shorten(given_form), shorten(truth_form))};
}

Equality compare_sympy(std::string_view truth, std::string_view given) {
  const std::string truth_form = sympy_form(truth);
  const std::string given_form = sympy_form(given);
  if (truth_form == given_form) return {true, fmt::format("'{}' in both", shorten(given_form))};
  if (given_form.empty()) return {false, "the answer is empty"};
  auto truth_elements = split_tuple(truth_form);
  auto given_elements = split_tuple(given_form);
  if (truth_elements.size() > 1 &&
      (truth_form.front() != given_form.front() || truth_form.back() != given_form.back())) {
    return {false, "the brackets differ"};
  }
  if (truth_elements.size() == 1 && given_elements.size() == 1) {
    truth_elements = split_list(truth_elements[0], truth);
    given_elements = split_list(given_elements[0], given);
  }
  if (truth_elements.size() != given_elements.size()) {
    return {false,
            fmt::format("{} elements, expected {}", given_elements.size(), truth_elements.size())};
  }
  if (truth.size() > kMaxExpressionBytes || given.size() > kMaxExpressionBytes) {
    return {false, "too long to compare by value"};
  }
  const Equality by_form = compare_each(truth_elements, given_elements);
  if (by_form.equal || truth_elements.size() != 1 || integer_text_with_commas(truth_elements[0]) ||
      integer_text_with_commas(given_elements[0])) {
    return by_form;
  }
  // Also compare as LaTeX, since the forms lose case and operands (sin x became sinx). Percent and
  // degree signs are dropped as in the forms: 12.5\% is 12.5, and not also 0.125.
  const Equality by_latex = compare_answers(truth, given, {.converts_units = false});
  return by_latex.equal || by_latex.undecided ? by_latex : by_form;
}

}  // namespace slimexx::reward
