#include "reward/latex/reading/lexer.h"

#include <algorithm>
#include <utility>

#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward::latex {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Whether the text begins with a proper fraction over three digits, such as "573/2000".
bool is_proper_fraction(std::string_view text) {
  size_t at = 0;
  const auto skip_blanks = [&] {
    while (at < text.size() && is_blank(text[at])) ++at;
  };
  const auto take_digits = [&] {
    const size_t start = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return text.substr(start, at - start);
  };
  const std::string_view top = take_digits();
  skip_blanks();
  if (top.size() != 3 || top[0] == '0' || at == text.size() || text[at++] != '/') return false;
  skip_blanks();
  const std::string_view bottom = take_digits();
  return bottom.size() > 3 || (bottom.size() == 3 && bottom > top);
}

// Letters in the style of variables, vectors and matrices are not units.
bool is_slanted(std::string_view command) {
  return command == "mathit" || command == "it" || command == "bf";
}

class Lexer {
 public:
  Lexer(std::string text, CommaMode mode) : text_(std::move(text)), mode_(mode) {}

  std::vector<Token> run() {
    while (at_ < text_.size() && tokens_.size() <= kMaxTokens) step();
    tokens_.push_back({Token::kEnd, "", "", space_});
    return std::move(tokens_);
  }
  bool mode_used() const { return mode_used_; }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool starts_with(std::string_view what) const {
    return std::string_view(text_).substr(at_, what.size()) == what;
  }
  void emit(Token::Kind kind, std::string_view text) {
    if (kind == Token::kCommand && (text == "frac" || text == "binom")) {
      pending_.back() = 2;
    } else if (pending_.back() > 0 && (kind == Token::kName || kind == Token::kNumber)) {
      --pending_.back();
    }
    tokens_.push_back({kind, std::string(text), "", space_, upright_});
    space_ = false;
  }
  bool after_number() const { return !tokens_.empty() && tokens_.back().kind == Token::kNumber; }
  bool after_value() const {
    if (tokens_.empty()) return false;
    const Token& last = tokens_.back();
    return last.kind == Token::kNumber || last.kind == Token::kName || last.text == "}" ||
           last.text == ")";
  }

  void step() {
    const char c = peek();
    if (is_blank(c) || c == '~') {
      space_ = true;
      ++at_;
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      lex_number();
    } else if (c == '\\') {
      lex_command();
    } else if (is_letter(c)) {
      lex_letters();
    } else {
      lex_symbol();
    }
  }

  // Length of a thousands separator at `pos` ("{,}", ",\!", "\,", " " or, in its mode, ","), or 0.
  // Exactly three digits must follow it.
  size_t thousands_separator(size_t pos, size_t group) const {
    std::string_view rest = std::string_view(text_).substr(pos);
    size_t length = 0;
    auto digits_follow = [&](size_t from) {
      return from + 3 <= rest.size() && is_digit(rest[from]) && is_digit(rest[from + 1]) &&
             is_digit(rest[from + 2]) && (from + 3 == rest.size() || !is_digit(rest[from + 3]));
    };
    for (std::string_view mark : {"{,}", " {, }", ",\\!", ",\\,", "\\,", " ", ","}) {
      if (rest.substr(0, mark.size()) != mark) continue;
      if (mark == "," && (mode_ != CommaMode::kThousands || depth_ > 0)) continue;
      length = mark.size();
      if (mark == ",\\!" && rest.substr(length, 1) == " ") ++length;
      if (mark == " " && is_proper_fraction(rest.substr(length))) return 0;  // 5 573/2000
      if (group <= 3 && digits_follow(length)) return length;
    }
    return 0;
  }

  bool decimal_comma(size_t start) const {
    if (mode_ != CommaMode::kDecimal || depth_ > 0 || peek() != ',' || !is_digit(peek(1))) {
      return false;
    }
    size_t end = at_ + 1;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const size_t places = end - at_ - 1, whole = at_ - start;
    const bool zero = whole == 1 && text_[start] == '0';
    if (end < text_.size() && text_[end] == ',') return false;
    return zero || (places >= 2 && (places != 3 || whole > 3));
  }

  void lex_number() {
    if (pending_.back() > 0 && is_digit(peek())) {  // \frac12 is one half
      emit(Token::kNumber, std::string_view(text_).substr(at_++, 1));
      return;
    }
    const size_t start = at_;
    std::string digits;
    while (is_digit(peek())) digits += text_[at_++];
    if (!digits.empty() && digits[0] != '0') {
      size_t group = digits.size();
      while (const size_t skip = thousands_separator(at_, group)) {
        if (skip == 1 && text_[at_] == ',') mode_used_ = true;
        at_ += skip;
        group = 3;
        for (int k = 0; k < 3; ++k) digits += text_[at_++];
      }
    }
    if (peek() == '.' && is_digit(peek(1))) {
      digits += text_[at_++];
      while (is_digit(peek())) digits += text_[at_++];
    } else if (decimal_comma(start)) {
      mode_used_ = true;
      digits += '.';
      ++at_;
      while (is_digit(peek())) digits += text_[at_++];
    } else if (peek() == '.' && (starts_with(".\\overline") || starts_with(".\\bar"))) {
      digits += text_[at_++];
    } else if (peek() == '.' && !starts_with("..")) {
      ++at_;  // "5." is 5
    }
    emit(Token::kNumber, digits);
    lex_period();
    lex_exponent();
  }

  // Reads \overline{45} or \dot{3} directly after decimals.
  void lex_period() {
    if (tokens_.back().text.find('.') == std::string::npos) return;
    for (std::string_view mark : {"\\overline{", "\\bar{", "\\dot{"}) {
      if (!starts_with(mark)) continue;
      size_t end = at_ + mark.size();
      while (end < text_.size() && is_digit(text_[end])) ++end;
      if (end == at_ + mark.size() || end >= text_.size() || text_[end] != '}') return;
      tokens_.back().repeat = text_.substr(at_ + mark.size(), end - at_ - mark.size());
      at_ = end + 1;
      return;
    }
  }

  // 1.5e-3 reads as 1.5 * 10^{-3}.
  void lex_exponent() {
    if (peek() != 'e' && peek() != 'E') return;
    const size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
    if (!is_digit(peek(1 + sign))) return;
    size_t end = at_ + 1 + sign;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end < text_.size() && (is_letter(text_[end]) || text_[end] == '.')) return;
    const std::string digits = text_.substr(at_ + 1 + sign, end - at_ - 1 - sign);
    Token mantissa = tokens_.back();
    tokens_.pop_back();
    tokens_.push_back({Token::kSymbol, "sci", "", mantissa.space_before});
    mantissa.space_before = false;
    tokens_.push_back(mantissa);
    tokens_.push_back({Token::kNumber, digits, sign && peek(1) == '-' ? "-" : "", false});
    at_ = end;
  }

  std::string read_command_name() {
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end]) &&
           static_cast<unsigned char>(text_[end]) < 0x80) {
      ++end;
    }
    std::string name = text_.substr(at_ + 1, end - at_ - 1);
    // "\quadx" and "\cdotx" lack a space: take the longest known command that begins the run.
    if (!is_known_command(name)) {
      for (size_t length = name.size(); length >= 3; --length) {
        const std::string head = name.substr(0, length);
        if (head != "quad" && head != "qquad" && head != "cdot" && head != "times") continue;
        name = head;
        break;
      }
    }
    at_ += 1 + name.size();
    return name;
  }

  void lex_command() {
    const char next = peek(1);
    if (next == '\\') {
      lex_double_backslash();
      return;
    }
    if (!is_letter(next)) {
      lex_escape(next);
      return;
    }
    const std::string name = read_command_name();
    if (name.empty()) {
      ++at_;
    } else if (is_text_wrapper(name) || is_text_switch(name)) {
      lex_text(name);
    } else if (const Spelling spelling = spelling_of_command(name); spelling.kind) {
      lex_spelled(name, spelling);
    } else if (is_function(name)) {
      emit(Token::kCommand, name);
    } else if (in_text_ && !is_greek(name)) {  // a unit of siunitx: \meter, \per, \m
      emit(name.size() == 1 ? Token::kName : Token::kWord, name);
    } else {
      emit(Token::kName, is_greek(name) ? name : "\\" + name);
    }
  }

  // "\\" is a row separator inside an environment; elsewhere it is doubly escaped text ("\\frac")
  // or a space.
  void lex_double_backslash() {
    if (environment_ > 0 && !starts_with("\\\\end{") && !starts_with("\\\\begin{")) {
      at_ += 2;
      emit(Token::kSymbol, "\\\\");
      return;
    }
    ++at_;
    if (!is_letter(peek(1)) && std::string_view("{}%$(),;!").find(peek(1)) == std::string::npos) {
      ++at_;
      space_ = true;
    }
  }

  void lex_escape(char next) {
    at_ += next == '\0' ? 1 : 2;
    switch (next) {
      case '{':
      case '}':
        depth_ += next == '{' ? 1 : -1;
        emit(Token::kSymbol, next == '{' ? "\\{" : "\\}");
        return;
      case '%':
        emit(Token::kSymbol, "%");
        return;
      case '$':
        emit(Token::kWord, "dollar");
        return;
      case '|':
        emit(Token::kSymbol, "\\|");
        return;
      default:
        space_ = true;
    }
  }

  void lex_spelled(const std::string& name, const Spelling& spelling) {
    if (name == "begin" || name == "end") {
      lex_environment(name);
      return;
    }
    static constexpr std::pair<char, Token::Kind> kKinds[] = {
        {'s', Token::kSymbol}, {'c', Token::kCommand}, {'n', Token::kName}, {'w', Token::kWord}};
    for (const auto& [letter, kind] : kKinds) {
      if (spelling.kind == letter) emit(kind, spelling.text);
    }
    if (name == "degreeCelsius" || name == "celsius") emit(Token::kName, "C");
  }

  void lex_environment(const std::string& name) {
    while (is_blank(peek())) ++at_;
    std::string kind;
    if (peek() == '{') {
      const size_t close = text_.find('}', at_);
      if (close != std::string::npos && close - at_ < 24) {
        kind = text_.substr(at_ + 1, close - at_ - 1);
        at_ = close + 1;
      }
    }
    environment_ += name == "begin" ? 1 : -1;
    if (name == "begin" && kind == "array" && peek() == '{') {  // the column format
      const size_t close = text_.find('}', at_);
      if (close != std::string::npos) at_ = close + 1;
    }
    emit(Token::kCommand, name + ":" + kind);
  }

  // Letters inside \text{...}, or from \rm to the end of the group, are words. Other commands work
  // as they do outside.
  void lex_text(const std::string& command) {
    if (peek() == '*') ++at_;
    while (is_blank(peek())) ++at_;
    space_ = true;
    const bool braced = peek() == '{', whole_group = braced || is_text_switch(command);
    if (!whole_group && (!is_letter(peek()) || is_letter(peek(1)))) return;
    const bool outer_text = std::exchange(in_text_, true);
    const bool outer_upright = std::exchange(upright_, !is_slanted(command));
    if (braced) ++at_;
    if (whole_group) {
      lex_group_of_text();
    } else {  // \mathrm m
      lex_letters();
    }
    if (braced && at_ < text_.size()) ++at_;
    in_text_ = outer_text;
    upright_ = outer_upright;
    space_ |= whole_group;
  }

  // This loop also reads text commands inside, so that nested input does not cause recursion.
  void lex_group_of_text() {
    int braces = 1;
    while (at_ < text_.size() && tokens_.size() <= kMaxTokens) {
      if (peek() == '{') ++braces;
      if (peek() == '}' && --braces == 0) return;
      const size_t before = at_;
      if (peek() == '\\' && is_letter(peek(1))) {
        const std::string name = read_command_name();
        if (is_text_wrapper(name) || is_text_switch(name)) {
          space_ = true;
          continue;
        }
        at_ = before;
      }
      step();
    }
  }

  void lex_letters() {
    const size_t start = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    split_letters(std::string_view(text_).substr(start, at_ - start));
  }

  void split_letters(std::string_view run) {
    const std::string lower = to_lower_ascii(run);
    const bool ascii = std::all_of(run.begin(), run.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (!ascii) {
      emit(Token::kWord, run);
    } else if (lower == "and" || lower == "or") {
      emit(Token::kWord, lower);
    } else if (run == "pi" || run == "infty" || run == "theta" || is_infinity_word(lower)) {
      emit(Token::kName, is_infinity_word(lower) ? "infty" : run);
    } else if (is_unit_abbreviation(lower) && (after_number() || (in_text_ && after_value())) &&
               !(is_function(lower) && argument_follows())) {
      emit(Token::kWord, run);
    } else if (is_function(run)) {
      emit(Token::kCommand, run);
    } else if (run.size() > 2 && is_function(lower) && argument_follows()) {
      emit(Token::kCommand, lower);  // GCD(a, b), \text{Max}(a, b)
    } else if (run == "choose" && after_value()) {
      emit(Token::kSymbol, run);
    } else if (lower == "degrees" || lower == "degree" || lower == "deg") {
      emit(Token::kSymbol, "degree");
    } else if (lower == "approximately" || lower == "approx" || lower == "about") {
      if (!tokens_.empty() && tokens_.back().text == "or") tokens_.pop_back();
      if (lower == "approx" && peek() == '.') ++at_;
      emit(Token::kSymbol, "~");
    } else if (lower == "percent" || lower == "pct") {
      emit(Token::kSymbol, "%");
    } else if (run.size() == 1) {
      emit(Token::kName, run);
    } else if (in_text_) {
      emit(Token::kWord, run);
    } else {
      split_math_letters(run);
    }
  }

  // Whether an argument follows: then "min" or "sec" is a function and not a unit.
  bool argument_follows() const {
    std::string_view rest = std::string_view(text_).substr(at_);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\n}"), rest.size()));
    if (rest.starts_with('(') || rest.starts_with('[') || rest.starts_with("\\{")) return true;
    if (in_text_ || rest.empty()) return false;
    const auto letters = std::find_if_not(rest.begin(), rest.end(), is_letter) - rest.begin();
    return is_digit(rest[0]) || rest[0] == '\\' || rest[0] == '{' || letters == 1;
  }

  static bool is_infinity_word(const std::string& lower) {
    return lower == "inf" || lower == "infinity" || lower == "oo";
  }

  void split_math_letters(std::string_view run) {
    if (std::all_of(run.begin(), run.end(), is_upper)) {
      emit(Token::kName, run);
      return;
    }
    for (std::string_view joint : {"or", "and"}) {  // "x=1orW=2"
      if (run.substr(0, joint.size()) != joint || run.size() > joint.size() + 1) continue;
      emit(Token::kWord, joint);
      emit(Token::kName, run.substr(joint.size()));
      return;
    }
    for (size_t tail = 0; tail <= 1 && tail + 2 <= run.size(); ++tail) {
      const std::string_view head = run.substr(0, run.size() - tail);
      if (tail && (is_function(head) || head == "pi")) {  // "sinx", "pix"
        emit(head == "pi" ? Token::kName : Token::kCommand, head);
        emit(Token::kName, run.substr(run.size() - tail));
        return;
      }
    }
    const bool capitalised = run.size() >= 3 && is_upper(run[0]);
    if (run.size() >= 4 || capitalised || run == "No") {
      emit(Token::kWord, run);
      return;
    }
    for (char c : run) emit(Token::kName, std::string_view(&c, 1));
  }

  void lex_symbol() {
    for (std::string_view two : {"<=", ">=", "!=", "=<", "=>", "==", "->", "..."}) {
      if (!starts_with(two)) continue;
      at_ += two.size();
      const std::string_view text = two == "=<"   ? "<="
                                    : two == "=>" ? ">="
                                    : two == "==" ? "="
                                                  : two;
      emit(Token::kSymbol, text);
      return;
    }
    const char c = text_[at_++];
    if (c == '(' || c == '[') ++depth_;
    if (c == ')' || c == ']') --depth_;
    if (c == '{') pending_.push_back(0);
    if (c == '}' && pending_.size() > 1) {
      pending_.pop_back();
      if (pending_.back() > 0) --pending_.back();
    }
    if (c == '"' || c == '`') {
      space_ = true;
      return;
    }
    emit(Token::kSymbol, std::string_view(&c, 1));
  }

  std::string text_;
  CommaMode mode_;
  size_t at_ = 0;
  int depth_ = 0, environment_ = 0;
  bool space_ = false, in_text_ = false, upright_ = false, mode_used_ = false;
  std::vector<Token> tokens_;
  std::vector<int> pending_{0};  // per open brace: arguments that a \frac still waits for
};

bool is_separator(const Token& token) {
  static constexpr std::string_view kMarks[] = {
      ",", ";", "=",  "<", ">", "<=", ">=",  "!=",   "+", "-",
      "*", "/", "in", "(", "[", "{",  "\\{", "quad", "~"};
  if (token.kind == Token::kEnd || (token.kind == Token::kWord && is_connective(token.text))) {
    return true;
  }
  return token.kind == Token::kSymbol &&
         std::find(std::begin(kMarks), std::end(kMarks), token.text) != std::end(kMarks);
}

bool is_symbol(const Token& token, std::string_view text) {
  return token.kind == Token::kSymbol && token.text == text;
}

// Drops the braces of {{x}}, and those of a single function or sign that is not a script: {=}, {\rm
// lcm}.
void drop_spare_braces(std::vector<Token>& tokens) {
  std::vector<size_t> open, close(tokens.size(), 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (is_symbol(tokens[i], "{")) open.push_back(i);
    if (!is_symbol(tokens[i], "}") || open.empty()) continue;
    close[open.back()] = i;
    open.pop_back();
  }
  std::vector<bool> spare(tokens.size(), false);
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (close[i] == 0) continue;
    const Token& inside = tokens[i + 1];
    static constexpr std::string_view kSigns[] = {"=",  "<", ">", "<=", ">=", "!=", "~",
                                                  "in", "+", "-", "*",  "/",  ","};
    const bool sign =
        inside.kind == Token::kSymbol &&
        std::find(std::begin(kSigns), std::end(kSigns), inside.text) != std::end(kSigns);
    const bool function = inside.kind == Token::kCommand && is_function(inside.text);
    const bool script = i > 0 && (is_symbol(tokens[i - 1], "^") || is_symbol(tokens[i - 1], "_"));
    const bool alone = close[i] == i + 2 && !script && (sign || function);
    const bool twice = close[i + 1] > 0 && close[i] == close[i + 1] + 1;
    if (alone || twice) spare[i] = spare[close[i]] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!spare[i]) std::swap(tokens[kept++], tokens[i]);
  }
  tokens.resize(kept);
}

// \quad between two answers becomes a comma; next to any other separator it is a space.
void settle_quads(std::vector<Token>& tokens) {
  std::vector<Token> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_symbol(tokens[i], "quad")) {
      out.push_back(std::move(tokens[i]));
      continue;
    }
    const bool spare = out.empty() || is_separator(out.back()) || is_separator(tokens[i + 1]) ||
                       tokens[i + 1].kind == Token::kWord || tokens[i + 1].text == ")" ||
                       out.back().kind == Token::kWord;
    if (!spare) out.push_back({Token::kSymbol, ",", "", true});
  }
  tokens = std::move(out);
}

}  // namespace

std::vector<Token> tokenize(std::string_view text, CommaMode mode, bool* mode_used) {
  Lexer lexer(clean_source(text), mode);
  std::vector<Token> tokens = lexer.run();
  drop_spare_braces(tokens);
  settle_quads(tokens);
  if (mode_used) *mode_used = lexer.mode_used();
  return tokens;
}

}  // namespace slimexx::reward::latex
