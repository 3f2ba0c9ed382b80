// compare_answers: parses texts to trees, for every reading of the commas between digits, and
// handles notations that are not expressions: clock times, multiple-choice options, words.
#include <algorithm>
#include <cctype>
#include <vector>

#include "reward/choice/choice.h"
#include "reward/graders.h"
#include "reward/latex/compare.h"
#include "reward/latex/reading/lexer.h"
#include "reward/latex/reading/parser.h"
#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

using latex::CommaMode;
using latex::Token;

// Longer answers are compared as text only.
constexpr size_t kMaxAnswerLength = 20000;

struct Reading {
  latex::Ref tree;
  std::string why_not;
};

// The tokens after the last "=" of one equation; empty for a list or an inequality.
std::vector<Token> last_side(const std::vector<Token>& tokens) {
  static constexpr std::string_view kOpen[] = {"(", "[", "{", "\\{"},
                                    kClose[] = {")", "]", "}", "\\}"},
                                    kOther[] = {",", ";", "<", ">", "<=", ">=", "!="};
  const auto is_one_of = [](const auto& marks, const Token& token) {
    return token.kind == Token::kSymbol &&
           std::find(std::begin(marks), std::end(marks), token.text) != std::end(marks);
  };
  int depth = 0;
  size_t start = 0;
  for (size_t k = 0; k < tokens.size(); ++k) {
    depth += is_one_of(kOpen, tokens[k]) ? 1 : is_one_of(kClose, tokens[k]) ? -1 : 0;
    if (depth > 0) continue;
    const bool joint = tokens[k].kind == Token::kWord && latex::is_connective(tokens[k].text);
    if (joint || is_one_of(kOther, tokens[k])) return {};
    if (tokens[k].kind == Token::kSymbol && tokens[k].text == "=") start = k + 1;
  }
  if (start == 0) return {};
  return {tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.end()};
}

// All readings of the text: the list reading first, others only if they differ. If equations name
// values, the left side need not parse: "P(A|B) = 1/2" names 1/2.
std::vector<Reading> read_all(std::string_view text, const EqualityRules& rules) {
  std::vector<Reading> readings;
  for (CommaMode mode : {CommaMode::kList, CommaMode::kThousands, CommaMode::kDecimal}) {
    bool used = false;
    const auto tokens = latex::tokenize(text, mode, &used);
    if (mode != CommaMode::kList && !used) continue;
    Reading reading;
    reading.tree = latex::parse_answer(tokens, &reading.why_not);
    if (!reading.tree && rules.equations_name_values) {
      std::string why_not;
      const auto side = last_side(tokens);
      if (!side.empty()) reading.tree = latex::parse_answer(side, &why_not);
    }
    readings.push_back(std::move(reading));
  }
  return readings;
}

std::string strip_wrappers(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 6) == "\\text{" || text.substr(at, 6) == "\\mbox{") {
      at += 5;
    } else if (text[at] != '{' && text[at] != '}') {
      out += text[at];
    }
  }
  return std::string(trim(out));
}

struct Clock {
  int minutes = 0;
  char half = 0;  // 'a', 'p' or unknown
};

std::optional<Clock> read_clock(std::string_view source) {
  std::string text;
  for (char c : to_lower_ascii(strip_wrappers(source))) {
    if (c != ' ' && c != '.' && c != '\\' && c != '~') text += c;
  }
  auto digit = [&](size_t k) {
    return k < text.size() && isdigit(static_cast<unsigned char>(text[k]));
  };
  size_t at = 0;
  int hour = 0, minute = 0;
  while (digit(at) && at < 2) hour = hour * 10 + (text[at++] - '0');
  if (at == 0 || at >= text.size() || text[at] != ':' || !digit(at + 1) || !digit(at + 2)) {
    return std::nullopt;
  }
  minute = (text[at + 1] - '0') * 10 + (text[at + 2] - '0');
  const std::string rest = text.substr(at + 3);
  if (minute > 59 || hour > 24 || !(rest.empty() || rest == "am" || rest == "pm")) {
    return std::nullopt;
  }
  return Clock{hour * 60 + minute, rest.empty() ? '\0' : rest[0]};
}

std::string only_letter(const std::vector<Token>& tokens) {
  std::string out;
  for (const Token& token : tokens) {
    if (token.kind == Token::kEnd || token.text == "(" || token.text == ")") continue;
    out += token.text;
  }
  return out;
}

// Whether both are the same letters and one is written as a word: \text{odd} and odd.
bool same_words(const std::vector<Token>& a, const std::vector<Token>& b) {
  bool word = false;
  auto letters = [&](const std::vector<Token>& tokens) {
    std::string out;
    for (const Token& token : tokens) {
      if (token.kind == Token::kEnd) break;
      if (token.kind != Token::kName && token.kind != Token::kWord) return std::string();
      word |= token.kind == Token::kWord;
      if (token.space_before && !out.empty() && token.text.size() > 1) out += ' ';
      out += to_lower_ascii(token.text);
    }
    return out;
  };
  const std::string x = letters(a), y = letters(b);
  return word && x.size() > 1 && x == y;
}

std::optional<Equality> compare_special(const std::string& gold, const std::string& prediction,
                                        const EqualityRules& rules) {
  const auto clock_a = read_clock(gold), clock_b = read_clock(prediction);
  if (clock_a && clock_b) {
    const bool halves = !clock_a->half || !clock_b->half || clock_a->half == clock_b->half;
    const bool same = clock_a->minutes == clock_b->minutes && halves;
    return Equality{same, same ? "the same time" : "different times"};
  }
  const auto choice_a = read_choice(gold), choice_b = read_choice(prediction);
  if (!choice_a && !choice_b) return std::nullopt;
  if (choice_a && choice_b) {
    if (choice_a->letter != choice_b->letter) return Equality{false, "different options"};
    if (choice_a->text.empty() || choice_b->text.empty()) return Equality{true, "the same option"};
    return compare_answers(choice_a->text, choice_b->text, rules);
  }
  const Choice& choice = choice_a ? *choice_a : *choice_b;
  const std::string& other = choice_a ? prediction : gold;
  if (only_letter(latex::tokenize(other, CommaMode::kList)) == std::string(1, choice.letter)) {
    return Equality{true, "the same option"};
  }
  if (choice.text.empty()) return Equality{false, "one is an option, the other is not"};
  return choice_a ? compare_answers(choice.text, other, rules)
                  : compare_answers(other, choice.text, rules);
}

Equality compare_readings(const std::vector<Reading>& gold, const std::vector<Reading>& prediction,
                          const EqualityRules& rules) {
  Equality result{false, ""};
  latex::Budget budget;
  for (const Reading& a : gold) {
    for (const Reading& b : prediction) {
      if (!a.tree || !b.tree) {
        if (result.reason.empty()) {
          result.reason = !a.tree ? "the reference cannot be read (" + a.why_not + ")"
                                  : "the answer cannot be read (" + b.why_not + ")";
        }
        continue;
      }
      const latex::Verdict verdict = latex::compare_trees(a.tree, b.tree, rules, budget);
      if (verdict.equal || result.reason.empty()) result = {verdict.equal, verdict.reason};
      if (verdict.equal) return result;
    }
  }
  if (budget.steps <= 0) {
    result.undecided = true;
    result.reason = "not decided within the step limit; so far " + result.reason;
  }
  return result;
}

}  // namespace

Equality compare_answers(std::string_view gold, std::string_view prediction,
                         const EqualityRules& rules) {
  if (trim(gold).empty()) return {false, "the reference is empty"};
  if (trim(prediction).empty()) return {false, "the answer is empty"};
  if (gold.size() > kMaxAnswerLength || prediction.size() > kMaxAnswerLength) {
    const bool same = gold == prediction;
    return {same,
            same ? "the same text" : "too long to be read as mathematics, and not the same text"};
  }
  const auto tokens_a = latex::tokenize(gold, CommaMode::kList);
  const auto tokens_b = latex::tokenize(prediction, CommaMode::kList);
  if (tokens_a.size() <= 1 || tokens_b.size() <= 1) {
    return {false, tokens_a.size() <= 1 ? "the reference is empty" : "the answer is empty"};
  }
  if (tokens_a == tokens_b) return {true, "the same text"};
  if (same_words(tokens_a, tokens_b)) return {true, "the same words"};
  const std::string source_a = latex::clean_source(gold),
                    source_b = latex::clean_source(prediction);
  if (auto special = compare_special(source_a, source_b, rules)) return *special;
  return compare_readings(read_all(gold, rules), read_all(prediction, rules), rules);
}

}  // namespace slimexx::reward
