// Splits LaTeX or plain text into tokens, drops formatting and unifies spellings.
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

// How to read a comma between digits at bracket depth 0: "1,234" is a list, a number with a
// thousands separator, or (for "1,25") a decimal.
enum class CommaMode { kList, kThousands, kDecimal };

// Above this many tokens an answer is compared as text only.
inline constexpr size_t kMaxTokens = 6000;

// `text` may be anything, even invalid UTF-8. The result ends with kEnd; `mode_used` tells whether
// the comma mode changed a token.
std::vector<Token> tokenize(std::string_view text, CommaMode mode, bool* mode_used = nullptr);

// Translates Unicode mathematics to LaTeX; drops dollars, display delimiters, layout and a trailing
// full stop.
std::string clean_source(std::string_view text);

// "12 m/s" as "12 \mathrm{m/s}": a number, a space and letters of a unit. Use it only if the
// letters are known not to be variables.
std::optional<std::string> with_upright_unit(std::string_view answer);

// Removes sizes, colours, spaces and formula numbers. Variants of \over, \choose and \frac become
// these three.
std::string drop_layout(std::string_view text);

}  // namespace slimexx::reward::latex
