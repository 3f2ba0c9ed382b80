#include <algorithm>
#include <optional>

#include "reward/answers/answer_forms.h"
#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

constexpr std::string_view kFrac = "\\frac";
constexpr std::string_view kSqrt = "\\sqrt";

// The parts of `text` between occurrences of `separator`.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t found = text.find(separator);
    parts.push_back(text.substr(0, found));
    if (found == std::string_view::npos) return parts;
    text.remove_prefix(found + separator.size());
  }
}

// \sqrt3 -> \sqrt{3}. nullopt if a \sqrt has no operand.
std::optional<std::string> brace_sqrt(std::string_view text) {
  const auto parts = split_at(text, kSqrt);
  std::string out(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (part.empty()) return std::nullopt;
    out += kSqrt;
    if (part[0] == '{') {
      out += part;
    } else {
      const size_t length = char_length(part, 0);
      out.append("{").append(part.substr(0, length)).append("}").append(part.substr(length));
    }
  }
  return out;
}

// \frac12 -> \frac{1}{2}, \frac1{72} -> \frac{1}{72}; unchanged if one operand is missing. nullopt
// if a \frac has no operand.
std::optional<std::string> brace_fractions(const std::string& text) {
  const auto parts = split_at(text, kFrac);
  std::string out(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (part.empty()) return std::nullopt;
    out += kFrac;
    if (part[0] == '{') {
      out += part;
      continue;
    }
    const size_t first = char_length(part, 0);
    if (first == part.size()) return text;
    out.append("{").append(part.substr(0, first)).append("}");
    if (part[first] == '{') {
      out += part.substr(first);
    } else {
      const size_t second = char_length(part, first);
      out.append("{").append(part.substr(first, second)).append("}");
      out += part.substr(first + second);
    }
  }
  return out;
}

bool is_canonical_integer(std::string_view text) {
  if (text == "0") return true;
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return !text.empty() && text[0] != '0' && std::all_of(text.begin(), text.end(), is_digit);
}

std::string fraction_from_slash(const std::string& text) {
  const auto parts = split_at(text, "/");
  if (parts.size() != 2 || !is_canonical_integer(parts[0]) || !is_canonical_integer(parts[1])) {
    return text;
  }
  return "\\frac{" + std::string(parts[0]) + "}{" + std::string(parts[1]) + "}";
}

void drop_marks(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {"\n", ""},     {"\\!", ""},     {"\\\\", "\\"},    {"tfrac", "frac"}, {"dfrac", "frac"},
      {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""},
  };
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

// Whether the text after "\text{ " is a unit that ends the answer. In "-3 \text{ and } 5" the 5 is
// an answer too.
bool is_unit_tail(std::string_view text) {
  const size_t close = text.find('}');
  if (close == text.npos) return true;
  const std::string_view rest = trim_space(text.substr(close + 1));
  return rest.empty() || rest == "." || rest[0] == '^';
}

// nullopt if the rules do not apply; then the answer is compared as written.
std::optional<std::string> strip_latex(std::string text) {
  drop_marks(text);
  const auto before_unit = split_at(text, "\\text{ ");
  if (before_unit.size() > 2) return std::nullopt;
  if (before_unit.size() == 2 && is_unit_tail(before_unit[1])) text = std::string(before_unit[0]);
  replace_all(text, "\\%", "");
  replace_all(text, " .", " 0.");
  replace_all(text, "{.", "{0.");
  if (text.empty()) return text;
  if (text[0] == '.') text.insert(0, 1, '0');

  const auto sides = split_at(text, "=");
  if (sides.size() == 2 && last_chars(sides[0], 2) == sides[0]) {
    text = std::string(sides[1]);
  }
  auto braced = brace_sqrt(text);
  if (!braced) return std::nullopt;
  replace_all(*braced, " ", "");
  braced = brace_fractions(*braced);
  if (!braced) return std::nullopt;
  if (*braced == "0.5") return "\\frac{1}{2}";
  return fraction_from_slash(*braced);
}

}  // namespace

std::string mathd_form(std::string_view answer) {
  constexpr std::string_view kText = "\\text{";
  answer = trim_space(answer);
  if (answer.size() > kText.size() + 1 && answer.starts_with(kText) && answer.ends_with('}') &&
      answer.find('\n') == std::string_view::npos) {
    answer = trim_space(answer.substr(kText.size(), answer.size() - kText.size() - 1));
  }
  const std::string as_written(answer);
  return strip_latex(as_written).value_or(as_written);
}

}  // namespace slimexx::reward
