// The pieces of a sentence, which plain_math puts together.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reward/answers/formulas.h"

namespace slimexx::reward {

struct Piece {
  enum Role {
    kOperand,  // a number, a letter, a formula, a bracket without prose
    kInfix,    // between two operands; relations also before one (">= 5")
    kSign,     // between two operands, or before one: - and +-
    kPrefix,   // "negative", "the square root of"
    kSuffix,   // after an operand: %, !, "squared", "million"
    kEquals,
    kSkip,   // white space, emphasis, currency, an aside in brackets
    kWord,   // prose
    kBreak,  // punctuation or the end of a line
  };
  Role role = kBreak;
  size_t begin = 0, end = 0;
  std::string latex;
  bool value = false;    // has a digit, or is pi or a formula
  bool number = false;   // digits alone
  bool formula = false;  // one formula of the text
  bool applies = false;  // takes the next operand across white space: sqrt, sin, \frac
  bool follows = false;  // a factor across white space: "2 pi", "3 \sqrt{2}", "2 sqrt(13)"
};

// Reads the piece at `at`. `before` is the previous piece; `touches`: no white space between them.
Piece read_piece(std::string_view text, size_t at, const Piece* before, bool touches);

Piece formula_piece(std::string_view text, const Span& formula);

}  // namespace slimexx::reward
