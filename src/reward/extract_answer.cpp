// The final answer of a response. Several boxes or formulas that are joined by nothing but commas,
// "and" or "or" are one answer, a list: a response that offers two answers for one does not match.
#include "reward/extract_answer.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "reward/boxed.h"
#include "reward/latex/lexer.h"
#include "reward/latex/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr size_t kMaxGap = 48;          // characters between two parts of one answer
constexpr size_t kMaxPlainAnswer = 80;  // a response this short may be an answer as a whole

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Is `gap` only what joins two answers of one list?
bool is_joint(std::string_view gap, bool need_mark) {
  if (gap.size() > kMaxGap) return false;
  bool mark = false, connective = false, word = false;
  for (size_t at = 0; at < gap.size(); ++at) {
    const char c = gap[at];
    if (is_digit(c) || c == '=' || c == '.' || c == '?' || c == '!' || c == ':') return false;
    if (c == '\n' && gap.find('\n', at + 1) != kNone && gap.find_first_not_of(" \n", at) != kNone &&
        gap.substr(at, 2) == "\n\n") {
      return false;
    }
    if (c == ',' || c == ';' || c == '+' || c == '&') mark = true;
    if (!is_letter(c)) continue;
    size_t end = at;
    while (end < gap.size() && is_letter(gap[end])) ++end;
    const std::string run = to_lower_ascii(gap.substr(at, end - at));
    const bool command = at > 0 && gap[at - 1] == '\\';
    if (run == "and" || run == "or") {
      connective = true;
    } else if (!command) {
      word = true;
    }
    at = end - 1;
  }
  if (word) return connective;
  return mark || connective || !need_mark;
}

struct Span {
  size_t start = 0, begin = 0, end = 0, stop = 0;
};

// The last span, with those before it that belong to the same list.
std::string join_last(std::string_view text, const std::vector<Span>& spans, bool need_mark) {
  size_t first = spans.size() - 1;
  while (first > 0 &&
         is_joint(text.substr(spans[first - 1].stop, spans[first].start - spans[first - 1].stop),
                  need_mark)) {
    --first;
  }
  std::string out;
  for (size_t k = first; k < spans.size(); ++k) {
    if (!out.empty()) out += " , ";
    out += text.substr(spans[k].begin, spans[k].end - spans[k].begin);
  }
  // "\boxed{28} pct", "$28$ %"
  std::string_view rest = text.substr(spans.back().stop);
  while (!rest.empty() && (rest[0] == ' ' || rest[0] == '$' || rest[0] == '\\'))
    rest.remove_prefix(1);
  if (rest.substr(0, 1) == "%" || rest.substr(0, 7) == "percent" || rest.substr(0, 3) == "pct") {
    out += "\\%";
  }
  return out;
}

std::vector<Span> box_spans(std::string_view text, size_t* unclosed) {
  std::vector<Span> spans;
  for (const BoxedSpan& box : find_boxes(text, unclosed)) {
    spans.push_back({box.start, box.begin, box.end, box.stop});
  }
  return spans;
}

// $...$, $$...$$, \(...\), \[...\]. A dollar that looks like money opens nothing.
std::vector<Span> find_formulas(std::string_view text) {
  std::vector<Span> spans;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string_view close;
    size_t width = 2;
    if (text[at] == '\\' && at + 1 < text.size()) {
      if (text[at + 1] == '(') close = "\\)";
      if (text[at + 1] == '[') close = "\\]";
      if (close.empty()) {
        ++at;
        continue;
      }
    } else if (text[at] == '$') {
      width = text.substr(at, 2) == "$$" ? 2 : 1;
      close = width == 2 ? "$$" : "$";
    } else {
      continue;
    }
    size_t end = text.find(close, at + width);
    while (end != kNone && close[0] == '$' && end > 0 && text[end - 1] == '\\') {
      end = text.find(close, end + 1);
    }
    if (end == kNone) {
      if (close == "$$" || close == "$") break;  // no further dollar pairs up
      continue;
    }
    if (end > at + width) spans.push_back({at, at + width, end, end + close.size()});
    at = end + close.size() - 1;
  }
  return spans;
}

bool is_money(std::string_view text, const Span& span) {
  const std::string_view inside = text.substr(span.begin, span.end - span.begin);
  return is_digit(inside[0]) && std::count(inside.begin(), inside.end(), ' ') > 2 &&
         inside.find('\\') == kNone && inside.find('=') == kNone;
}

// -1,234.5, 2/3, 12%
std::optional<Span> last_number(std::string_view text) {
  size_t last = text.find_last_of("0123456789");
  if (last == kNone) return std::nullopt;
  size_t end = last + 1, begin = last;
  auto part_of_number = [&](size_t k) {
    if (is_digit(text[k])) return true;
    const bool between = k > 0 && is_digit(text[k + 1]);
    if (text[k] == '.' && is_digit(text[k + 1])) return true;
    return between && is_digit(text[k - 1]) && (text[k] == ',' || text[k] == '/');
  };
  while (begin > 0 && part_of_number(begin - 1)) --begin;
  const bool sign = begin > 0 && text[begin - 1] == '-' &&
                    (begin == 1 || !(isalnum(static_cast<unsigned char>(text[begin - 2])) ||
                                     text[begin - 2] == ')'));
  if (sign) --begin;
  return Span{begin, begin, end, end};
}

bool has_prose(std::string_view text) {
  static constexpr std::string_view kShortWords[] = {" is ",  " it ",  " it's ", " the ",
                                                     " so ",  " we ",  " of ",   " not ",
                                                     " are ", " was ", " has "};
  const std::string padded = " " + to_lower_ascii(text) + " ";
  for (std::string_view word : kShortWords) {
    if (padded.find(word) != std::string::npos) return true;
  }
  for (const auto& token : latex::tokenize(text, latex::CommaMode::kList)) {
    if (token.kind != latex::Token::kWord || latex::is_connective(token.text)) continue;
    if (!latex::is_known_unit(latex::canonical_unit(token.text))) return true;
  }
  return false;
}

// Markdown's emphasis and the quotation marks around an answer.
std::string_view strip_emphasis(std::string_view text) {
  static constexpr std::string_view kMarks = " \t\r\n*_\"'`:";
  const size_t begin = text.find_first_not_of(kMarks);
  if (begin == kNone) return {};
  size_t end = text.find_last_not_of(kMarks);
  return text.substr(begin, end + 1 - begin);
}

// In one sentence: all of it if it is no prose, else its last formula or number.
std::optional<std::string> pick(std::string_view raw) {
  const std::string_view text = strip_emphasis(raw);
  if (text.empty()) return std::nullopt;
  if (text.size() <= kMaxPlainAnswer && !has_prose(text)) return std::string(text);
  std::vector<Span> formulas = find_formulas(text);
  std::erase_if(formulas, [&](const Span& span) { return is_money(text, span); });
  const auto number = last_number(text);
  if (!formulas.empty() && (!number || number->stop <= formulas.back().stop)) {
    return join_last(text, formulas, true);
  }
  if (number) return join_last(text, {*number}, true);
  return std::nullopt;
}

// Up to the end of the sentence or line; an empty first line is passed over.
std::string_view sentence_at(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n:*");
  if (start == kNone) return {};
  text = text.substr(start);
  bool formula = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '$') formula = !formula;
    if (text[at] == '\n' && !formula && text.substr(0, 2) != "\\[") return text.substr(0, at);
    if (text[at] == '\\' && text.substr(at, 2) == "\\]") return text.substr(0, at + 2);
    const bool stop = text[at] == '.' && !formula &&
                      (at + 1 == text.size() || text[at + 1] == ' ' || text[at + 1] == '\n');
    if (stop) return text.substr(0, at);
  }
  return text;
}

std::optional<std::string> after_phrase(std::string_view text, const std::string& lower,
                                        std::string_view phrase) {
  const size_t at = lower.rfind(phrase);
  if (at == kNone) return std::nullopt;
  std::string_view rest = text.substr(at + phrase.size());
  const std::string_view sentence = sentence_at(rest);
  if (auto picked = pick(sentence)) return picked;
  const std::string_view words = strip_emphasis(sentence);
  if (words.empty() || words.size() > kMaxPlainAnswer) return std::nullopt;
  return std::string(words);
}

std::optional<std::string> tagged_answer(std::string_view text) {
  const size_t close = text.rfind("</answer>");
  if (close == kNone) return std::nullopt;
  const size_t open = text.substr(0, close).rfind("<answer>");
  if (open == kNone) return std::nullopt;
  return std::string(trim(text.substr(open + 8, close - open - 8)));
}

std::optional<std::string> hashed_answer(std::string_view text) {
  const size_t at = text.rfind("####");
  if (at == kNone) return std::nullopt;
  const std::string_view rest = text.substr(at + 4);
  const std::string_view line = trim(rest.substr(0, rest.find('\n')));
  if (line.empty()) return std::nullopt;
  if (auto picked = pick(line)) return picked;
  return std::string(line);
}

}  // namespace

std::string_view final_part(std::string_view response) {
  if (const size_t at = response.rfind("</think>"); at != kNone) response = response.substr(at + 8);
  for (std::string_view marker : {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                  "<|user|>", "<|end|>", "</s>"}) {
    const size_t at = response.find(marker);
    if (at != kNone && at > 0) response = response.substr(0, at);
  }
  return response;
}

std::string read_label(std::string_view label) {
  size_t unclosed = kNone;
  const auto boxes = box_spans(label, &unclosed);
  if (!boxes.empty()) return join_last(label, boxes, false);
  if (unclosed != kNone) return std::string(label.substr(unclosed));
  return std::string(trim(label));
}

std::optional<std::string> extract_answer(std::string_view response) {
  const std::string_view text = final_part(response);
  size_t unclosed = kNone;
  const auto boxes = box_spans(text, &unclosed);
  if (unclosed != kNone) return std::nullopt;  // cut off inside its last box
  if (!boxes.empty()) return join_last(text, boxes, false);
  if (auto tagged = tagged_answer(text)) return tagged;
  if (auto hashed = hashed_answer(text)) return hashed;
  const std::string lower = to_lower_ascii(text);
  for (std::string_view phrase : {"final answer is", "final answer:", "final answer", "answer is",
                                  "answer:", "answers are"}) {
    if (auto found = after_phrase(text, lower, phrase)) return found;
  }
  return pick(text);
}

}  // namespace slimexx::reward
