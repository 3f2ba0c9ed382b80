// A tolerant recursive descent over LaTeX, which copies unknown macros and characters.
#include <algorithm>

#include "reward/answers/answer_forms.h"
#include "reward/answers/latex_symbols.h"
#include "reward/answers/text_scan.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

constexpr int kMaxDepth = 100;  // of groups, operands and environments

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether `text` is one number, one name that may stand for one factor, one call or one bracket.
bool is_atom(std::string_view text) {
  if (text.empty()) return true;
  if (std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; }))
    return true;
  if (char_length(text, 0) == text.size() || text == "pi" || text == "inf") return true;
  size_t open = 0;
  while (open < text.size() && is_letter(text[open])) ++open;
  if (open == text.size() || text[open] != '(') return false;
  int64_t depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) return i + 1 == text.size();
  }
  return false;
}

// Whether `text` has a sum, list or relation outside brackets, so that a following "/" would change
// its value. A leading sign does not count.
bool is_sum(std::string_view text) {
  int64_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth > 0) continue;
    if (c == '+' || c == ',' || c == '=' || c == '<' || c == '>' || (c == '-' && i > 0))
      return true;
    const uint32_t wide = static_cast<unsigned char>(c) < 0x80 ? 0 : char_at(text, i);
    if (wide == 0xB1 || wide == 0x2213) return true;  // plus-minus, minus-plus
  }
  return false;
}

std::string parenthesize(const std::string& text) { return "(" + text + ")"; }

std::string power_operand(const std::string& text) {
  const bool negative = !text.empty() && text[0] == '-';
  return is_atom(std::string_view(text).substr(negative ? 1 : 0)) ? text : parenthesize(text);
}

std::string fraction_text(const std::string& above, const std::string& below) {
  return (is_sum(above) ? parenthesize(above) : above) + "/" +
         (is_atom(below) ? below : parenthesize(below));
}

std::string in_alphabet(const std::string& text, MathAlphabet alphabet) {
  if (alphabet == MathAlphabet::kPlain) return text;
  const bool bold = alphabet == MathAlphabet::kBold;
  std::string out;
  for (const char c : text) {
    if (!bold && !blackboard_letter(c).empty()) {
      out += blackboard_letter(c);
    } else if (c >= 'A' && c <= 'Z') {
      append_utf8(out, (bold ? 0x1D400u : 0x1D538u) + static_cast<uint32_t>(c - 'A'));
    } else if (c >= 'a' && c <= 'z') {
      append_utf8(out, (bold ? 0x1D41Au : 0x1D552u) + static_cast<uint32_t>(c - 'a'));
    } else {
      out += c;
    }
  }
  return out;
}

class PlainTextWriter {
 public:
  explicit PlainTextWriter(std::string_view latex) : latex_(latex) {}

  std::optional<std::string> write() {
    std::string out;
    while (position_ < latex_.size() && !too_deep_) {
      out += read_run();
      if (position_ < latex_.size()) ++position_;  // a brace or an \end that closes nothing
    }
    if (too_deep_) return std::nullopt;
    return out;
  }

 private:
  // Reads up to the brace or \end that closes the enclosing group, without consuming it.
  std::string read_run() {
    if (++depth_ > kMaxDepth) too_deep_ = true;
    std::string out;
    while (position_ < latex_.size() && !too_deep_) {
      if (latex_[position_] == '}' || latex_.substr(position_).starts_with("\\end{")) break;
      out += read_item();
    }
    --depth_;
    return out;
  }

  std::string read_item() {
    const char c = latex_[position_];
    if (c == '{') return read_group();
    if (c == '\\') return read_macro();
    if (c == '^' || c == '_') {
      ++position_;
      skip_blanks();
      if (position_ == latex_.size() || latex_[position_] == '}') return std::string(1, c);
      return c + power_operand(read_operand());
    }
    if (c == '~') {
      ++position_;
      return " ";
    }
    if (c == '&') {
      ++position_;
      return matrix_depth_ > 0 ? ", " : " ";
    }
    const size_t length = char_length(latex_, position_);
    position_ += length;
    return std::string(latex_.substr(position_ - length, length));
  }

  std::string read_group() {
    ++position_;
    std::string out = read_run();
    if (position_ < latex_.size() && latex_[position_] == '}') ++position_;
    return out;
  }

  // Reads one group, macro or character.
  std::string read_operand() {
    skip_blanks();
    if (position_ == latex_.size() || latex_[position_] == '}' || too_deep_) return "";
    if (++depth_ > kMaxDepth) too_deep_ = true;
    std::string out = too_deep_ ? "" : read_item();
    --depth_;
    return out;
  }

  std::string read_macro() {
    const size_t begin = ++position_;
    while (position_ < latex_.size() && is_letter(latex_[position_])) ++position_;
    const bool named = position_ > begin;
    if (!named && position_ < latex_.size()) position_ += char_length(latex_, position_);
    const std::string_view name = latex_.substr(begin, position_ - begin);
    if (named) skip_blanks();
    if (name == "\\") return matrix_depth_ > 0 ? "; " : " ";
    if (name == "frac" || name == "cfrac") {
      const std::string above = read_operand();
      return fraction_text(above, read_operand());
    }
    if (name == "sqrt") return read_root();
    if (name == "binom" || name == "dbinom" || name == "tbinom") {
      const std::string above = read_operand();
      return "binom(" + above + "," + read_operand() + ")";
    }
    if (name == "begin") return read_environment();
    if (const auto alphabet = alphabet_of(name)) return in_alphabet(read_operand(), *alphabet);
    if ((name == "left" || name == "right") && position_ < latex_.size() &&
        latex_[position_] == '.') {
      ++position_;
      return "";
    }
    if (const auto symbol = symbol_text(name)) return std::string(*symbol);
    return "\\" + std::string(name);
  }

  std::string read_root() {
    std::string index;
    if (position_ < latex_.size() && latex_[position_] == '[') {
      const size_t close = latex_.find(']', position_);
      if (close != std::string_view::npos) {
        index = latex_.substr(position_ + 1, close - position_ - 1);
        position_ = close + 1;
      }
    }
    const std::string radicand = read_operand();
    if (index.empty() || index == "2") return "sqrt(" + radicand + ")";
    return "(" + radicand + ")^(1/" + power_operand(index) + ")";
  }

  std::string read_environment() {
    const std::string name = read_operand();
    const bool matrix = name.find("matrix") != std::string::npos || name == "array";
    if (name == "array") read_operand();  // the column format
    matrix_depth_ += matrix ? 1 : 0;
    std::string body = read_run();
    matrix_depth_ -= matrix ? 1 : 0;
    if (position_ < latex_.size() && latex_[position_] == '\\') {
      position_ += 4;  // \end
      read_operand();
    }
    return matrix ? "[ " + body + " ]" : body;
  }

  void skip_blanks() {
    while (position_ < latex_.size() && (latex_[position_] == ' ' || latex_[position_] == '\n')) {
      ++position_;
    }
  }

  std::string_view latex_;
  size_t position_ = 0;
  int depth_ = 0;
  int matrix_depth_ = 0;
  bool too_deep_ = false;
};

}  // namespace

std::optional<std::string> latex_plain_text(std::string_view latex) {
  std::string text(latex);
  replace_all(text, "\\tfrac", "\\frac");
  replace_all(text, "\\dfrac", "\\frac");
  replace_all(text, "\\frac", " \\frac");  // keeps the 3 of 3\frac{1}{2} separate
  auto out = PlainTextWriter(text).write();
  if (!out) return std::nullopt;
  static constexpr std::pair<std::string_view, std::string_view> kOperators[] = {
      {"\u221a", "sqrt"}, {"\u03c0", "pi"}, {"\u221e", "inf"},
      {"\u222a", "U"},    {"\u00b7", "*"},  {"\u00d7", "*"},
  };
  for (const auto& [from, to] : kOperators) replace_all(*out, from, to);
  return std::string(trim_space(*out));
}

}  // namespace slimexx::reward
