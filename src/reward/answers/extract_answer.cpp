// The final answer of a response. Several boxes or formulas joined only by commas, "and" or "or"
// are one answer, a list: a response that gives two answers when one is asked for does not match.
#include "reward/answers/extract_answer.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "reward/answers/boxed.h"
#include "reward/answers/formulas.h"
#include "reward/answers/plain_math.h"
#include "reward/latex/reading/lexer.h"
#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr size_t kMaxGap = 48;          // characters between two parts of one answer
constexpr size_t kMaxPlainAnswer = 80;  // a response this short may be an answer as a whole

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether `gap` only joins two answers of one list.
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

// The last span, together with the spans before it that belong to the same list.
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

// Strips Markdown emphasis and quotation marks around an answer, and an arrow before it.
std::string_view strip_emphasis(std::string_view text) {
  static constexpr std::string_view kMarks = " \t\r\n*_\"'`:";
  size_t begin = text.find_first_not_of(kMarks);
  if (begin == kNone) return {};
  const std::string_view first = text.substr(begin, 2);
  if (first == "=>" || first == "->") begin = text.find_first_not_of(kMarks, begin + 2);
  if (begin == kNone) return {};
  size_t end = text.find_last_not_of(kMarks);
  return text.substr(begin, end + 1 - begin);
}

// Whether the gap between two plain values is only "," or "and", with at most one word before: "10
// apples and ".
bool is_plain_joint(std::string_view gap) {
  gap = trim(gap);
  size_t word = 0;
  while (word < gap.size() && is_letter(gap[word])) ++word;
  const std::string_view first = gap.substr(0, word);
  const bool counted = first != "and" && first != "or";
  const std::string_view joint = trim(counted ? gap.substr(word) : gap);
  if (joint == "and" || joint == "or" || joint == ", and" || joint == ", or") return true;
  return !(counted && word > 0) && (joint == "," || joint == ";" || joint == "&");
}

// The last value of a text, together with the values before it in the same list. nullopt if the
// text does not commit to a value.
std::optional<std::string> last_value(std::string_view text) {
  const std::vector<MathRun> runs = find_math(text);
  if (runs.empty() || runs.back().negated) return std::nullopt;
  const auto joined = [&](const MathRun& a, const MathRun& b) {
    const std::string_view gap = text.substr(a.end, b.begin - a.end);
    if (a.formula && b.formula) return is_joint(gap, true);
    return a.name.empty() == b.name.empty() && is_plain_joint(gap);
  };
  size_t first = runs.size() - 1;
  while (first > 0 && joined(runs[first - 1], runs[first])) --first;
  std::string out;
  for (size_t k = first; k < runs.size(); ++k) {
    if (!out.empty()) out += " , ";
    out += runs[k].latex;
  }
  return out;
}

// The answer in one sentence: the whole sentence if it is not prose, otherwise its last value.
std::optional<std::string> pick(std::string_view raw) {
  const std::string_view text = strip_emphasis(raw);
  if (text.empty()) return std::nullopt;
  if (text.size() <= kMaxPlainAnswer && !has_prose(text)) return std::string(text);
  return last_value(text);
}

// The text up to the end of the sentence or line outside of formulas; skips an empty first line.
std::string_view sentence_at(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n:*");
  if (start == kNone) return {};
  const bool bullet = text.substr(0, start).find('\n') != kNone && text.substr(start, 2) == "- ";
  text = text.substr(bullet ? start + 2 : start);
  const std::vector<Span> formulas = find_formulas(text);
  auto formula = formulas.begin();
  // A display that begins the sentence is the whole sentence, unless a list continues after it.
  if (!formulas.empty() && formulas[0].start == 0 && text.substr(0, 2) == "\\[") {
    const size_t stop = formulas[0].stop;
    const bool list =
        formulas.size() > 1 && is_joint(text.substr(stop, formulas[1].start - stop), true);
    if (!list) return text.substr(0, stop);
  }
  for (size_t at = 0; at < text.size(); ++at) {
    while (formula != formulas.end() && formula->stop <= at) ++formula;
    if (formula != formulas.end() && formula->start <= at) {
      at = formula->stop - 1;
      continue;
    }
    if (text[at] == '\n') {
      // "The answer is given by" continues in a display that follows.
      const bool display = formula != formulas.end() && formula == formulas.begin() &&
                           text.find_first_not_of(" \t\r\n", at) == formula->start &&
                           formula->begin - formula->start != 1;
      if (!display || text.substr(0, at).find_first_of("0123456789") != kNone) {
        return text.substr(0, at);
      }
      at = formula->stop - 1;
      continue;
    }
    const bool stop =
        text[at] == '.' && (at + 1 == text.size() || text[at + 1] == ' ' || text[at + 1] == '\n');
    if (stop) return text.substr(0, at);
  }
  return text;
}

// Cuts the reason: "12, because 3 times 4 is 12" gives 12.
std::string_view before_reason(std::string_view sentence) {
  const std::string lower = to_lower_ascii(sentence);
  for (std::string_view word : {" because ", " since ", " where ", ", as "}) {
    const size_t at = lower.find(word);
    if (at != kNone && at > 0) return sentence.substr(0, at);
  }
  return sentence;
}

std::optional<std::string> after_phrase(std::string_view text, const std::string& lower,
                                        std::string_view phrase) {
  const size_t at = lower.rfind(phrase);
  if (at == kNone) return std::nullopt;
  std::string_view rest = text.substr(at + phrase.size());
  const std::string_view sentence = before_reason(sentence_at(rest));
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
  const std::string_view line = sentence_at(rest);
  if (line.empty()) return std::nullopt;
  // "#### Step 3" is a heading.
  const auto end = static_cast<size_t>(line.data() + line.size() - rest.data());
  if (has_prose(line) && !trim(rest.substr(end)).empty()) return std::nullopt;
  if (auto picked = pick(line)) return picked;
  return std::string(line);
}

}  // namespace

std::string_view final_part(std::string_view response) {
  // Tags that models write around their thoughts.
  static constexpr std::pair<std::string_view, std::string_view> kThoughts[] = {
      {"<think>", "</think>"},
      {"<thinking>", "</thinking>"},
      {"<thought>", "</thought>"},
      {"<reasoning>", "</reasoning>"},
      {"<seed:think>", "</seed:think>"},
      {"[THINK]", "[/THINK]"},
      {"\u25c1think\u25b7", "\u25c1/think\u25b7"},
      {"<|begin_of_thought|>", "<|end_of_thought|>"}};
  for (const auto& [open, close] : kThoughts) {
    const size_t at = response.rfind(close);
    if (at != kNone) response = response.substr(at + close.size());
  }
  for (std::string_view marker : {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                  "<|user|>", "<|end|>", "</s>"}) {
    const size_t at = response.find(marker);
    if (at != kNone && at > 0) response = response.substr(0, at);
  }
  for (const auto& [open, close] : kThoughts) {
    if (response.find(open) != kNone) return {};  // the thought never ends
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
