#include "text/jinja/syntax/lexer.h"

#include <algorithm>
#include <array>

#include "slimexx/base/strings.h"
#include "text/jinja/syntax/ast.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where)
      : text_(normalize_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (position_ < text_.size()) lex_top();
    push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& message) { fail_syntax(where_, line_, message); }
  std::string_view rest() const { return std::string_view(text_).substr(position_); }
  bool at(std::string_view s) const { return rest().substr(0, s.size()) == s; }

  void advance(size_t n) {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(position_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(n), '\n'));
    position_ += n;
    if (n > 0) line_starting_ = text_[position_ - 1] == '\n';
  }
  void push(TokenKind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
  }
  size_t space_length(size_t from) const { return skip_space(text_, from) - from; }

  // Position of the next {{, {% or {#.
  size_t find_tag(size_t from) const {
    for (size_t i = from; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#'))
        return i;
    }
    return std::string::npos;
  }

  // Emits the text before the tag at `tag`, stripped according to the tag's sign and lstrip_blocks.
  void push_text_before(size_t tag, bool is_variable, char sign) {
    std::string_view before = std::string_view(text_).substr(position_, tag - position_);
    const size_t length = before.size();
    if (sign == '-') {
      before = strip_space_right(before);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = before.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const bool at_line_begin = line_begin > 0 || line_starting_;
      if (at_line_begin && skip_space(before, line_begin) == before.size())
        before = before.substr(0, line_begin);
    }
    if (!before.empty()) push(TokenKind::kText, std::string(before));
    advance(length);
  }

  void lex_top() {
    const size_t tag = find_tag(position_);
    if (tag == std::string::npos) {
      push(TokenKind::kText, std::string(rest()));
      advance(rest().size());
      return;
    }
    const char kind = text_[tag + 1];
    const char after = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    push_text_before(tag, kind == '{', sign);
    const size_t head = sign == '\0' ? 2 : 3;
    if (kind == '#') {
      lex_comment(head);
    } else if (kind == '{') {
      push(TokenKind::kVariableBegin);
      advance(head);
      lex_inside(false);
    } else if (const size_t raw = match_tag_word(position_ + head, "raw", false); raw != 0) {
      advance(raw - position_);
      lex_raw();
    } else {
      push(TokenKind::kBlockBegin);
      advance(head);
      lex_inside(true);
    }
  }

  // If `word` and the end of a tag follow at `from`, returns the position after the tag, otherwise
  // 0. `end` tags also accept +%} and consume the line's end.
  size_t match_tag_word(size_t from, std::string_view word, bool end) const {
    size_t i = skip_space(text_, from);
    const std::string_view all(text_);
    if (all.substr(i, word.size()) != word) return 0;
    i = skip_space(text_, i + word.size());
    if (all.substr(i, 3) == "-%}") return skip_space(text_, i + 3);
    if (end && all.substr(i, 3) == "+%}") return i + 3;
    if (all.substr(i, 2) != "%}") return 0;
    return end && all.substr(i + 2, 1) == "\n" ? i + 3 : i + 2;
  }

  void lex_raw() {
    for (size_t tag = text_.find("{%", position_); tag != std::string::npos;
         tag = text_.find("{%", tag + 2)) {
      const char after = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const char sign = after == '-' || after == '+' ? after : '\0';
      const size_t past = match_tag_word(tag + (sign == '\0' ? 2 : 3), "endraw", true);
      if (past == 0) continue;
      push_text_before(tag, false, sign);
      advance(past - position_);
      return;
    }
    fail_here("missing end of raw block");
  }

  void lex_comment(size_t head) {
    const size_t end = text_.find("#}", position_ + head);
    if (end == std::string::npos) fail_here("missing end of comment");
    // The sign that opened the comment does not count at its end: {#-#}.
    const char sign = end > position_ + head ? text_[end - 1] : '\0';
    size_t past = end + 2;
    if (sign == '-') {
      past = skip_space(text_, past);
    } else if (sign != '+' && past < text_.size() && text_[past] == '\n') {
      ++past;
    }
    advance(past - position_);
  }

  // If the tag ends here, consumes the end and returns true.
  bool lex_end(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    size_t length = 0;
    if (at("-") && rest().substr(1, 2) == close) {
      length = 3 + space_length(position_ + 3);
    } else if (block && at("+%}")) {
      length = 3;
    } else if (at(close)) {
      length = 2 + (block && rest().substr(2, 1) == "\n" ? 1 : 0);
    }
    if (length == 0) return false;
    push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
    advance(length);
    return true;
  }

  void lex_inside(bool block) {
    std::string open;  // brackets that are open
    while (true) {
      advance(space_length(position_));
      if (position_ >= text_.size()) fail_here(block ? "unclosed {% tag" : "unclosed {{ tag");
      if (open.empty() && lex_end(block)) return;
      const char c = text_[position_];
      if (c == '\'' || c == '"') {
        lex_string(c);
      } else if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        size_t n = 1;
        while (position_ + n < text_.size() && is_name_part(text_[position_ + n])) ++n;
        push(TokenKind::kName, std::string(rest().substr(0, n)));
        advance(n);
      } else {
        lex_operator(open);
      }
    }
  }

  void lex_operator(std::string& open) {
    static constexpr std::array<std::string_view, 6> kTwo = {"**", "//", "==", "!=", ">=", "<="};
    std::string op(1, text_[position_]);
    for (const std::string_view two : kTwo) {
      if (at(two)) op = two;
    }
    if (op.size() == 1 &&
        std::string_view("+-*/%~[](){}><=.:|,;").find(op[0]) == std::string_view::npos) {
      fail_here(fmt::format("unexpected character '{}'", first_character(rest())));
    }
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const size_t close = kClose.find(op[0]); close != std::string_view::npos) {
      if (open.empty() || open.back() != kOpen[close])
        fail_here(fmt::format("unexpected '{}'", op));
      open.pop_back();
    } else if (kOpen.find(op[0]) != std::string_view::npos) {
      open += op;
    }
    push(TokenKind::kOperator, op);
    advance(op.size());
  }

  // Length of a run of digits, with single underscores allowed between them.
  template <class Accept>
  size_t digits_length(size_t from, Accept accept) const {
    size_t i = from;
    while (i < text_.size()) {
      if (accept(text_[i])) {
        ++i;
      } else if (text_[i] == '_' && i > from && i + 1 < text_.size() && accept(text_[i + 1])) {
        i += 2;
      } else {
        break;
      }
    }
    return i - from;
  }

  bool lex_float() {
    if (position_ > 0 && text_[position_ - 1] == '.') return false;
    size_t i = position_ + digits_length(position_, is_digit);
    bool real = false;
    if (i < text_.size() && text_[i] == '.') {
      const size_t fraction = digits_length(i + 1, is_digit);
      if (fraction > 0) {
        i += 1 + fraction;
        real = true;
      }
    }
    if (i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
      size_t j = i + 1;
      if (j < text_.size() && (text_[j] == '+' || text_[j] == '-')) ++j;
      const size_t exponent = digits_length(j, is_digit);
      if (exponent > 0) {
        i = j + exponent;
        real = true;
      }
    }
    if (!real) return false;
    push(TokenKind::kFloat);
    tokens_.back().real = parse_python_float(text_.substr(position_, i - position_)).value_or(0);
    advance(i - position_);
    return true;
  }

  void lex_number() {
    if (lex_float()) return;
    int base = 10;
    size_t prefix = 0;
    if (text_[position_] == '0' && position_ + 1 < text_.size()) {
      const char mark = static_cast<char>(text_[position_ + 1] | 0x20);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      prefix = base == 10 ? 0 : 2;
    }
    const auto accept = [&](char c) { return digit_value(c) < base; };
    size_t n = prefix + digits_length(position_ + prefix, accept);
    if (n == prefix) fail_here("a number has no digits");
    const std::string digits = text_.substr(position_, n);
    if (base == 10 && digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of("0_") != std::string::npos) {
      fail_here("a number has leading zeros");
    }
    const auto value = parse_python_int(digits, base == 10 ? 10 : 0);
    if (!value) fail_here("an integer needs more than 127 bits");
    push(TokenKind::kInteger, digits);
    tokens_.back().integer = *value;
    advance(n);
  }

  void lex_string(char quote) {
    const int begin_line = line_;
    std::string value;
    size_t i = position_ + 1;
    while (true) {
      if (i >= text_.size()) fail_here("unclosed string");
      if (text_[i] == quote) break;
      if (text_[i] == '\\') {
        i = decode_escape(i + 1, value);
      } else {
        value += text_[i++];
      }
    }
    push(TokenKind::kString, std::move(value));
    tokens_.back().line = begin_line;
    advance(i + 1 - position_);
  }

  // Decodes one of Python's escapes; `i` is the position after the backslash. Returns the position
  // after the escape.
  size_t decode_escape(size_t i, std::string& value) {
    if (i >= text_.size()) fail_here("unclosed string");
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[i];
    if (c == '\n') return i + 1;
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      value += kTo[at];
      return i + 1;
    }
    if (c >= '0' && c <= '7') return decode_digits(i, 1, 3, 8, value);
    if (c == 'x') return decode_digits(i + 1, 2, 2, 16, value);
    if (c == 'u') return decode_digits(i + 1, 4, 4, 16, value);
    if (c == 'U') return decode_digits(i + 1, 8, 8, 16, value);
    if (c == 'N') fail_here("\\N{name} escapes are not supported");
    value += '\\';
    value += c;
    return i + 1;
  }

  size_t decode_digits(size_t i, size_t at_least, size_t at_most, uint32_t base,
                       std::string& value) {
    uint64_t code = 0;
    size_t n = 0;
    while (n < at_most && i + n < text_.size() &&
           digit_value(text_[i + n]) < static_cast<int>(base)) {
      code = code * base + static_cast<uint64_t>(digit_value(text_[i + n]));
      ++n;
    }
    if (n < at_least) fail_here("truncated escape in a string");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail_here("the escape is not a Unicode character");
    append_utf8(value, static_cast<uint32_t>(code));
    return i + n;
  }

  std::string text_;
  const std::string& where_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex_template(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace slimexx::text::jinja
