#include "reward/answers/plain_pieces.h"

#include <algorithm>
#include <optional>

#include "reward/answers/plain_words.h"
#include "reward/answers/text_scan.h"
#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr size_t kMaxBracket = 300;  // longest bracket that is read as a whole

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
char char_or_blank(std::string_view text, size_t at) { return at < text.size() ? text[at] : ' '; }

// Position after the bracket that closes the bracket at `at`; kNone if none closes it within
// kMaxBracket.
size_t bracket_end(std::string_view text, size_t at) {
  int depth = 0;
  const size_t limit = std::min(text.size(), at + kMaxBracket);
  for (size_t k = at; k < limit; ++k) {
    if (text[k] == '(' || text[k] == '[' || text[k] == '{') ++depth;
    if ((text[k] == ')' || text[k] == ']' || text[k] == '}') && --depth == 0) return k + 1;
    if (text[k] == '\n') return kNone;
  }
  return kNone;
}

// Whether the text has a word of two letters or more that is not the name of a function.
bool has_word(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!is_letter(text[at])) {
      ++at;
      continue;
    }
    const size_t start = at;
    while (at < text.size() && is_letter(text[at])) ++at;
    const std::string_view word = text.substr(start, at - start);
    const bool command = start > 0 && text[start - 1] == '\\';
    if (word.size() > 1 && !command && !latex::is_function(word) && word != "mod" && word != "pi") {
      return true;
    }
  }
  return false;
}

// Superscript and subscript digits.
bool is_raised(uint32_t c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2089);
}

bool has_digit(std::string_view text) { return std::any_of(text.begin(), text.end(), is_digit); }

class PieceReader {
 public:
  PieceReader(std::string_view text, size_t at, const Piece* before, bool touches)
      : text_(text), at_(at), before_(before), touches_(touches) {}

  Piece read() const {
    const char c = text_[at_];
    if (c == '\n') return make(Piece::kBreak, 1);
    if (is_blank(c)) return make(Piece::kSkip, 1);
    if (is_digit(c) || (c == '.' && is_digit(next()) && !touches_operand())) return read_number();
    if (c == '\\') return read_command();
    if (static_cast<unsigned char>(c) >= 0x80) return read_wide();
    if (is_letter(c)) return read_word();
    if (c == '(' || c == '[' || c == '{') return read_bracket();
    if (c == '|') return read_bars();
    return read_mark(c);
  }

 private:
  char next(size_t ahead = 1) const { return char_or_blank(text_, at_ + ahead); }
  char previous() const { return at_ == 0 ? '\n' : text_[at_ - 1]; }
  bool after_operand() const {
    return before_ && (before_->role == Piece::kOperand || before_->role == Piece::kSuffix);
  }
  bool touches_operand() const { return touches_ && after_operand(); }

  Piece make(Piece::Role role, size_t length) const {
    return {role,  at_,   at_ + length, std::string(text_.substr(at_, length)),
            false, false, false,        false};
  }

  // Reads "1,234.5" and letters directly after it: "3.2e5", "2x", "20th", "12cm".
  Piece read_number() const {
    size_t end = at_;
    while (end < text_.size() &&
           (is_digit(text_[end]) || ((text_[end] == '.' || text_[end] == ',') &&
                                     is_digit(char_or_blank(text_, end + 1))))) {
      ++end;
    }
    const size_t digits = end;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    Piece piece = make(Piece::kOperand, end - at_);
    piece.value = true;
    piece.number = end == digits;
    // "1,000.99m" has a unit: a letter is a factor only after an integer.
    static constexpr std::string_view kUnits[] = {"m", "g", "s", "l", "L", "h"};
    const bool unit = std::find(std::begin(kUnits), std::end(kUnits),
                                text_.substr(digits, end - digits)) != std::end(kUnits);
    if (unit && text_.substr(at_, digits - at_).find_first_of(".,") != kNone) {
      piece.latex.resize(digits - at_);
      if (end < text_.size() && is_raised(char_at(text_, end)))
        piece.end += char_length(text_, end);
    }
    return piece;
  }

  Piece read_command() const {
    if (!is_letter(next())) return read_escape(next());
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string name(text_.substr(at_ + 1, end - at_ - 1));
    const latex::Spelling spelling = latex::spelling_of_command(name);
    if (name == "pm" || name == "mp") return make(Piece::kSign, end - at_);
    const bool layout = latex::is_layout(name) && char_or_blank(text_, end) != '{';
    if (layout || spelling.text == "quad") return make(Piece::kSkip, end - at_);
    if (spelling.kind == 's' && name != "circ" && name != "prime" && name != "infty") {
      return make(Piece::kInfix, end - at_);
    }
    bool groups = false;
    while (end < text_.size() && (text_[end] == '{' || text_[end] == '[')) {
      const size_t close = bracket_end(text_, end);
      if (close == kNone) break;
      end = close;
      groups = true;
    }
    Piece piece = make(latex::is_text_wrapper(name) ? Piece::kSuffix : Piece::kOperand, end - at_);
    piece.value = groups || name == "pi" || name == "infty" || has_digit(piece.latex);
    piece.applies = !groups && (latex::is_function(name) || name == "frac");
    piece.follows = true;
    return piece;
  }

  Piece read_escape(char c) const {
    if (c == '%') return make(Piece::kSuffix, 2);
    if (c == '{') {
      const size_t close = text_.substr(0, at_ + kMaxBracket).find("\\}", at_);
      if (close == kNone) return make(Piece::kBreak, 2);
      Piece set = make(Piece::kOperand, close + 2 - at_);
      set.value = true;
      return set;
    }
    return make(Piece::kSkip, std::min<size_t>(2, text_.size() - at_));
  }

  Piece read_wide() const {
    const size_t length = char_length(text_, at_);
    const uint32_t c = char_at(text_, at_);
    if (is_raised(c)) return make(touches_operand() ? Piece::kSuffix : Piece::kBreak, length);
    const auto latex = latex::latex_of_code_point(c);
    if (!latex) return is_word(c) ? read_word() : make(Piece::kBreak, length);
    const std::string_view meaning = trim(*latex);
    static constexpr std::pair<std::string_view, Piece::Role> kRoles[] = {
        {"+", Piece::kInfix},        {"*", Piece::kInfix},      {"/", Piece::kInfix},
        {"<=", Piece::kInfix},       {">=", Piece::kInfix},     {"!=", Piece::kInfix},
        {"\\approx", Piece::kInfix}, {"\\cup", Piece::kInfix},  {"\\cap", Piece::kInfix},
        {"\\in", Piece::kInfix},     {"\\to", Piece::kInfix},   {"\\setminus", Piece::kInfix},
        {"-", Piece::kSign},         {"\\pm", Piece::kSign},    {"\\mp", Piece::kSign},
        {"=", Piece::kEquals},       {"%", Piece::kSuffix},     {"\\degree", Piece::kSuffix},
        {"...", Piece::kSuffix},     {"\"", Piece::kSkip},      {"", Piece::kSkip},
        {"\\euro", Piece::kSkip},    {"\\pounds", Piece::kSkip}};
    for (const auto& [text, role] : kRoles) {
      if (text == meaning) return make(role, length);
    }
    if (meaning == "\\lfloor" || meaning == "\\lceil") return read_floor(length);
    if (meaning[0] != '\\' || latex->find("text") != kNone) return make(Piece::kBreak, length);
    Piece piece = make(Piece::kOperand, length);
    piece.value = has_digit(meaning) || meaning == "\\pi" || meaning == "\\infty";
    piece.follows = true;
    piece.applies = meaning.substr(0, 5) == "\\sqrt";
    if (piece.applies) piece.value = false;
    return piece;
  }

  // In UTF-8 the opening and closing signs of floor and ceiling have the same length.
  Piece read_floor(size_t length) const {
    std::string close(text_.substr(at_, length));
    ++close.back();
    const size_t end = text_.substr(0, at_ + kMaxBracket).find(close, at_);
    if (end == kNone) return make(Piece::kBreak, length);
    Piece piece = make(Piece::kOperand, end + length - at_);
    piece.value = has_digit(piece.latex);
    return piece;
  }

  Piece read_word() const {
    size_t end = at_;
    bool digits = false;
    const bool ascii = is_letter(text_[at_]);  // Chinese has no space between words and numbers
    while (end < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[end]);
      const bool apostrophe = text_[end] == '\'' && is_letter(char_or_blank(text_, end + 1));
      const bool wide = byte >= 0x80 && is_word(char_at(text_, end)) &&
                        !is_raised(char_at(text_, end)) &&
                        !latex::latex_of_code_point(char_at(text_, end));
      const bool digit = ascii && is_digit(text_[end]);
      if (!is_letter(text_[end]) && !digit && !apostrophe && !wide) break;
      digits = digits || is_digit(text_[end]);
      end += wide ? char_length(text_, end) : 1;
    }
    Piece piece = make(Piece::kWord, end - at_);
    const std::string word = to_lower_ascii(piece.latex);
    if (auto wording = read_wording()) return *wording;
    const bool function = latex::is_function(word);
    const bool called = char_or_blank(text_, end) == '(';
    const bool alone = is_blank(previous()) && is_blank(char_or_blank(text_, end));
    const bool letter = word.size() == 1 && !(alone && (word == "a" || word == "i"));
    if (letter && word == "x" && is_times_sign(end)) return with_latex(Piece::kInfix, 1, "*");
    const bool attached = ascii && touches_operand();
    if (digits || function || called || letter || attached) piece.role = Piece::kOperand;
    piece.value = digits;
    piece.applies = function && !called;
    piece.follows = called || word == "sqrt";
    return piece;
  }

  Piece with_latex(Piece::Role role, size_t length, std::string_view latex) const {
    Piece piece = make(role, length);
    piece.latex = latex;
    return piece;
  }

  // "3 x 4"
  bool is_times_sign(size_t end) const {
    const size_t after = skip_space(text_, end);
    return after_operand() && before_->value && !touches_ && after > end && after < text_.size() &&
           (is_digit(text_[after]) || text_[after] == '(');
  }

  std::optional<Piece> read_wording() const {
    const Wording* wording = find_wording(text_, at_, after_operand() && before_->value);
    if (!wording) return std::nullopt;
    Piece piece = with_latex(wording->role, wording->words.size(), wording->latex);
    piece.value = wording->value;
    piece.follows = wording->role == Piece::kOperand;
    return piece;
  }

  Piece read_bracket() const {
    const size_t end = bracket_end(text_, at_);
    if (end == kNone) return make(Piece::kBreak, 1);
    Piece piece = make(Piece::kOperand, end - at_);
    piece.value = has_digit(piece.latex);
    const bool exponent = touches_ && before_ && before_->role == Piece::kInfix;
    if (!exponent && has_word(piece.latex)) {
      // Prose in brackets after a value is an aside; elsewhere it is read like other text.
      return after_operand() ? make(Piece::kSkip, end - at_) : make(Piece::kBreak, 1);
    }
    return piece;
  }

  // |x - 1|
  Piece read_bars() const {
    const size_t end = text_.substr(0, at_ + 60).find('|', at_ + 1);
    if (end == kNone || is_blank(next()) || has_word(text_.substr(at_, end - at_))) {
      return make(Piece::kBreak, 1);
    }
    Piece piece = make(Piece::kOperand, end + 1 - at_);
    piece.value = has_digit(piece.latex);
    return piece;
  }

  Piece read_mark(char c) const {
    if (text_.substr(at_, 2) == "<<") {  // <<48/2=24>>, a calculator's note
      const size_t close = text_.substr(0, at_ + kMaxBracket).find(">>", at_);
      if (close != kNone) return make(Piece::kSkip, close + 2 - at_);
    }
    static constexpr std::string_view kTwo[] = {"<=", ">=", "!=", "->"};
    for (std::string_view two : kTwo) {
      if (text_.substr(at_, 2) == two) return make(Piece::kInfix, 2);
    }
    if (text_.substr(at_, 2) == "=>") return make(Piece::kBreak, 2);
    switch (c) {
      case '=':
        return make(Piece::kEquals, 1);
      case '+':
      case '/':
      case '^':
      case '<':
      case '>':
        return make(Piece::kInfix, 1);
      case '-':
        return read_dash();
      case ':': {
        const bool even = is_blank(previous()) == is_blank(next());
        return make(even && after_operand() ? Piece::kInfix : Piece::kBreak, 1);
      }
      case '*':
      case '_':
        return read_emphasis(c);
      case '%':
        return make(Piece::kSuffix, 1);
      case '!':
        return make(touches_operand() ? Piece::kSuffix : Piece::kBreak, 1);
      case '.':
        return touches_operand() && next() == '.' ? make(Piece::kSuffix, next(2) == '.' ? 3 : 2)
                                                  : make(Piece::kBreak, 1);
      case '$':
      case '"':
      case '`':
      case '~':
        return make(Piece::kSkip, 1);
      default:
        return make(Piece::kBreak, 1);
    }
  }

  // A dash at the start of a line is a bullet; several dashes in a row are punctuation.
  Piece read_dash() const {
    size_t length = 1;
    while (next(length) == '-') ++length;
    const size_t line = text_.find_last_not_of(" \t", at_ == 0 ? 0 : at_ - 1);
    const bool bullet = is_blank(next()) && (at_ == 0 || line == kNone || text_[line] == '\n');
    return make(length > 1 || bullet ? Piece::kBreak : Piece::kSign, length);
  }

  // Tells emphasis, "**12** apples", from operators, "2 ** 10" and "3*4".
  Piece read_emphasis(char c) const {
    size_t length = 1;
    while (next(length) == c) ++length;
    const auto outer = [](char side) {
      return is_blank(side) || std::string_view(".,;:!?()\"'").find(side) != kNone;
    };
    const char left = previous(), right = next(length);
    const bool opens = (is_blank(left) || left == '(') && !is_blank(right);
    const bool closes = !is_blank(left) && outer(right) && right != '(';
    if (opens || closes || length > 2 || !after_operand()) return make(Piece::kSkip, length);
    return make(Piece::kInfix, length);
  }

  std::string_view text_;
  size_t at_;
  const Piece* before_;
  bool touches_;
};

}  // namespace

Piece read_piece(std::string_view text, size_t at, const Piece* before, bool touches) {
  return PieceReader(text, at, before, touches).read();
}

Piece formula_piece(std::string_view text, const Span& formula) {
  Piece piece;
  piece.role = Piece::kOperand;
  piece.begin = formula.start;
  piece.end = formula.stop;
  piece.latex = std::string(text.substr(formula.begin, formula.end - formula.begin));
  piece.value = piece.formula = true;
  return piece;
}

}  // namespace slimexx::reward
