// `dapo`: "Answer: ..." near the end of the response, normalised, against an integer label; +1 or
// -1.
#include "reward/dapo.h"

#include <fmt/core.h>

#include <algorithm>

#include "reward/answers/decimal_text.h"
#include "reward/answers/text_scan.h"
#include "reward/graders.h"

namespace slimexx::reward {
namespace {

constexpr size_t kTailChars = 300;
constexpr std::string_view kInvalid = "[INVALID]";

// Texts to delete, in this order: words that follow a number, and LaTeX that does not change the
// value.
constexpr std::string_view kDeleted[] = {
    "square",
    "ways",
    "integers",
    "dollars",
    "mph",
    "inches",
    "hours",
    "km",
    "units",
    "\\ldots",
    "sue",
    "points",
    "feet",
    "minutes",
    "digits",
    "cents",
    "degrees",
    "cm",
    "gm",
    "pounds",
    "meters",
    "meals",
    "edges",
    "students",
    "childrentickets",
    "multiples",
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    "\"",
    "\\dots",
    "<|im_end|>",
    "<|endoftext|>",
};

constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
    {"an ", ""},          {"a ", ""},
    {".$", "$"},          {"\\$", ""},
    {"\\ ", ""},          {" ", ""},
    {"mbox", "text"},     {",\\text{and}", ","},
    {"\\text{and}", ","}, {"\\text{m}", "\\text{}"},
};

// Keeps, on each line with two dollar signs, only the text between the first two.
std::string keep_first_formula(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t open = line.find('$');
    const size_t close = open == line.npos ? line.npos : line.find('$', open + 1);
    out += close == line.npos ? line : line.substr(open, close - open + 1);
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

// Replaces each `opening`...} by its content, up to the next brace of that line, or up to the
// line's last brace.
void unwrap(std::string& text, std::string_view opening, bool to_last_brace) {
  size_t found = text.find(opening);
  if (found == std::string::npos) return;
  std::string out;
  size_t begin = 0;
  for (; found != std::string::npos; found = text.find(opening, begin)) {
    const size_t inside = found + opening.size();
    const size_t line_end = std::min(text.find('\n', inside), text.size());
    const std::string_view line = std::string_view(text).substr(inside, line_end - inside);
    const size_t close = to_last_brace ? line.rfind('}') : line.find('}');
    out.append(text, begin, found - begin);
    if (close == line.npos) {
      out.append(opening).append(line);
      begin = line_end;
    } else {
      out.append(line.substr(0, close));
      begin = inside + close + 1;
    }
  }
  text = out.append(text, begin);
}

// frac12 -> frac{1}{2} with two operands, sqrt2 -> sqrt{2} with one; only if no brace follows.
void brace_operands(std::string& text, std::string_view name, int operands) {
  size_t found = text.find(name);
  std::string out;
  size_t begin = 0;
  for (; found != std::string::npos; found = text.find(name, std::max(begin, found + 1))) {
    const size_t first = found + name.size();
    if (first >= text.size() || text[first] == '{') continue;
    const size_t second = first + char_length(text, first);
    const bool has_second = second < text.size() && text[second] != '\n';
    if (operands == 2 && !has_second) continue;
    out.append(text, begin, first - begin);
    out.append("{").append(text, first, second - first).append("}");
    begin = second;
    if (operands == 2) {
      const size_t end = second + char_length(text, second);
      out.append("{").append(text, second, end - second).append("}");
      begin = end;
    }
  }
  text = out.append(text, begin);
}

void drop_commas_of_number(std::string& text) {
  const auto digit_or_comma = [](char c) { return is_digit(c) || c == ','; };
  if (std::all_of(text.begin(), text.end(), digit_or_comma) &&
      std::any_of(text.begin(), text.end(), is_digit)) {
    std::erase(text, ',');
  }
}

// Start of the answer after "answer", blanks and a colon at `position`; npos if they are not there.
size_t answer_start(std::string_view text, size_t position) {
  constexpr std::string_view kWord = "answer";
  if (!matches_word(text, position, kWord)) return text.npos;
  const size_t colon = skip_space(text, position + kWord.size());
  if (colon >= text.size() || text[colon] != ':') return text.npos;
  const size_t begin = skip_space(text, colon + 1);
  if (begin < text.size()) return begin;
  // Only blanks after the colon: the last of them that is not a line feed is the answer.
  for (size_t i = text.size(); i > colon + 1;) {
    i = previous_char(text, i);
    if (text[i] != '\n') return i;
  }
  return text.npos;
}

}  // namespace

std::string dapo_form(std::string_view answer) {
  const size_t equals = answer.rfind('=');
  std::string text(equals == answer.npos ? answer : answer.substr(equals + 1));
  for (const auto& [from, to] : kReplaced) replace_all(text, from, to);
  for (const std::string_view deleted : kDeleted) replace_all(text, deleted, "");
  text = keep_first_formula(text);
  for (const char* opening : {"\\text{", "\\textbf{", "\\overline{"}) unwrap(text, opening, false);
  unwrap(text, "\\boxed{", true);
  brace_operands(text, "frac", 2);
  brace_operands(text, "sqrt", 1);
  replace_all(text, "$", "");
  drop_commas_of_number(text);
  return std::string(trim_space(text));
}

std::string dapo_prediction(std::string_view response) {
  const std::string_view tail = last_chars(response, kTailChars);
  std::string_view answer = kInvalid;
  for (size_t i = 0; i < tail.size();) {
    const size_t begin = answer_start(tail, i);
    if (begin == tail.npos) {
      ++i;
      continue;
    }
    const size_t end = std::min(tail.find('\n', begin), tail.size());
    answer = tail.substr(begin, end - begin);
    i = end;
  }
  return dapo_form(answer);
}

Grade grade_dapo(const RewardInput& input) {
  Grade grade;
  grade.prediction = dapo_prediction(input.response);
  const auto label = integer_text(dapo_form(input.label));
  if (!label) {
    grade.failed = true;
    grade.reason =
        fmt::format("the label '{}' is not an integer, which dapo needs", shorten(input.label));
    grade.values = {{"score", 0.0}, {"acc", 0.0}};
    return grade;
  }
  const bool correct = grade.prediction == *label;
  grade.reward = correct ? 1 : -1;
  grade.values = {{"score", grade.reward}, {"acc", correct ? 1.0 : 0.0}};
  if (grade.prediction == kInvalid) {
    grade.reason = fmt::format("{}no 'Answer:' in the last {} characters", kNoAnswer, kTailChars);
  } else {
    grade.reason = fmt::format("{}: '{}', label {}", correct ? "equal" : "not equal",
                               shorten(grade.prediction), shorten(*label));
  }
  return grade;
}

std::string give_dapo(const RewardInput& input) {
  return "Answer: " + integer_text(dapo_form(input.label)).value_or(input.label);
}

}  // namespace slimexx::reward
