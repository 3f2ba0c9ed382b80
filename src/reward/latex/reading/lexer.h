// LaTeX or plain text to tokens: formatting is dropped, spellings of one thing are unified.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::reward::latex {

struct Token {
  enum Kind {
    kNumber,   // digits with at most one point; `repeat` holds the period of a repeating decimal
    kName,     // a variable or constant: "x", "AB", "theta", "pi"
    kWord,     // prose or a unit
    kCommand,  // a function or construct: "sin", "sqrt", "frac", "begin:pmatrix"
    kSymbol,   // + - * / ^ _ ( ) [ ] \{ \} { } , ; : ! % ' | & \\ < > <= >= != ~ and others
    kEnd,
  };
  Kind kind = kEnd;
  std::string text;
  std::string repeat;
  bool space_before = false;
  bool upright = false;  // in \text, \mathrm ...: a letter that may be a unit's
  friend bool operator==(const Token& a, const Token& b) {
    return a.kind == b.kind && a.text == b.text && a.repeat == b.repeat;
  }
};

// How a comma between digits at bracket depth 0 reads: "1,234" is a list, a number with a thousands
// separator, or (for "1,25") a decimal.
enum class CommaMode { kList, kThousands, kDecimal };

// Beyond this many tokens an answer is compared as text only.
inline constexpr size_t kMaxTokens = 6000;

// `text` may be anything, invalid UTF-8 included. The result ends with kEnd; `mode_used` tells
// whether the comma mode changed a token.
std::vector<Token> tokenize(std::string_view text, CommaMode mode, bool* mode_used = nullptr);

// Unicode mathematics to LaTeX; dollars, display delimiters, layout and a trailing full stop
// dropped.
std::string clean_source(std::string_view text);

// "12 m/s" as "12 \mathrm{m/s}": a number, a space and letters of a unit. Only a caller that knows
// that the letters are no variables may read the answer so.
std::optional<std::string> with_upright_unit(std::string_view answer);

// Without sizes, colours, spaces and numbers of formulas. Variants of \over, \choose and \frac
// become these.
std::string drop_layout(std::string_view text);

}  // namespace slimexx::reward::latex
