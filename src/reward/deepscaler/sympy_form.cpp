#include "reward/answers/answer_forms.h"

#include <algorithm>

#include "reward/answers/decimal_text.h"
#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

// In this order: "cm" goes before "centimeter", "centimeter" before "meter".
constexpr std::string_view kUnits[] = {"degree", "cm",   "centimeter", "meter", "mile",  "second",
                                       "minute", "hour", "day",        "week",  "month", "year",
                                       "foot",   "feet", "inch",       "yard"};

size_t skip_blanks(std::string_view text, size_t position) {
  while (position < text.size() && text[position] == ' ') ++position;
  return position;
}

// Position after a unit's plural, blanks and power, as in "meters ^2".
size_t skip_unit_tail(std::string_view text, size_t position) {
  if (text.substr(position).starts_with("es")) position += 2;
  if (position < text.size() && text[position] == 's') ++position;
  position = skip_blanks(text, position);
  if (position + 1 < text.size() && text[position] == '^' && is_digit(text[position + 1])) {
    ++position;
    while (position < text.size() && is_digit(text[position])) ++position;
  }
  return position;
}

void remove_unit(std::string& text, std::string_view unit) {
  size_t found = text.find(unit);
  if (found == std::string::npos) return;
  std::string out;
  size_t begin = 0;
  for (; found != std::string::npos; found = text.find(unit, begin)) {
    out.append(text, begin, found - begin);
    begin = skip_unit_tail(text, found + unit.size());
  }
  text = out.append(text, begin);
}

// Removes "^\circ", also with blanks between "^" and "\circ".
void remove_degree_signs(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t name = text[i] == '^' ? skip_blanks(text, i + 1) : i;
    if (name > i && std::string_view(text).substr(name).starts_with("\\circ")) {
      i = name + 5;
    } else {
      out.append(text, i, std::max<size_t>(name - i, 1));
      i = std::max(name, i + 1);
    }
  }
  text = std::move(out);
}

// Replaces each `mark` and the blanks after it by `kept`.
void replace_with_blanks(std::string& text, std::string_view mark, std::string_view kept) {
  size_t found = text.find(mark);
  if (found == std::string::npos) return;
  std::string out;
  size_t begin = 0;
  for (; found != std::string::npos; found = text.find(mark, begin)) {
    out.append(text, begin, found - begin).append(kept);
    begin = skip_blanks(text, found + mark.size());
  }
  text = out.append(text, begin);
}

// Whether the number that `text` ends with has a minus sign.
bool ends_in_negative(std::string_view text) {
  const size_t sign = text.find_last_not_of("0123456789");
  return sign != text.npos && text[sign] == '-';
}

// "7 3/4" -> "7+3/4", "-7 3/4" -> "-7-3/4". A digit that follows a joined gap does not begin
// another: "7 3 4" -> "7+3 4".
void join_mixed_numbers(std::string& text) {
  std::string out;
  size_t free_from = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (!is_digit(text[i]) || i < free_from) continue;
    const size_t next = skip_blanks(text, i + 1);
    if (next == i + 1 || next == text.size() || !is_digit(text[next])) continue;
    out += ends_in_negative(out) ? '-' : '+';
    i = next - 1;
    free_from = next + 1;
  }
  text = std::move(out);
}

void unwrap_text(std::string& text) {
  constexpr std::string_view kText = "\\text{";
  std::string_view body = text;
  if (body.ends_with('\n')) body.remove_suffix(1);
  if (body.size() <= kText.size() + 1 || !body.starts_with(kText) || !body.ends_with('}')) return;
  body = body.substr(kText.size(), body.size() - kText.size() - 1);
  if (body.find('\n') == std::string_view::npos) text = std::string(body);
}

void drop_words(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {"\\%", "%"},
      {"\\$", "$"},
      {"$", ""},
      {"%", ""},
      {" or ", " , "},
      {" and ", " , "},
      {"million", "*10^6"},
      {"billion", "*10^9"},
      {"trillion", "*10^12"},
  };
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
  for (const std::string_view unit : kUnits) remove_unit(text, unit);
  remove_degree_signs(text);
}

}  // namespace

std::string sympy_form(std::string_view answer) {
  std::string text(answer);
  unwrap_text(text);
  drop_words(text);
  if (text.size() > 1 && text.front() == '{' && text.back() == '}') {
    text = text.substr(1, text.size() - 2);
  }
  replace_with_blanks(text, ",\\!", "");
  if (auto integer = integer_text(text)) text = *integer;
  if (text.find_first_of("\\{") != std::string::npos) {
    if (auto plain = latex_plain_text(text)) text = *plain;
  }
  replace_with_blanks(text, "-", "-");
  join_mixed_numbers(text);
  for (const char* mark : {" ", "{", "}"}) replace_all(text, mark, "");
  text = lower_text(text);
  return integer_text_with_commas(text).value_or(text);
}

std::vector<std::string> split_tuple(std::string_view form) {
  constexpr std::string_view kBrackets = "()[]";
  const std::string text = strip_thousands_commas(form);
  if (text.empty()) return {};
  const bool flat = text.size() > 2 && kBrackets.find(text.front()) != std::string_view::npos &&
                    kBrackets.find(text.back()) != std::string_view::npos &&
                    text.find_first_of(kBrackets, 1) == text.size() - 1;
  if (!flat) return {text};
  std::vector<std::string> elements;
  std::string_view rest(text);
  rest = rest.substr(1, rest.size() - 2);
  for (;;) {
    const size_t comma = rest.find(',');
    elements.emplace_back(trim_space(rest.substr(0, comma)));
    if (comma == std::string_view::npos) return elements;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace slimexx::reward
