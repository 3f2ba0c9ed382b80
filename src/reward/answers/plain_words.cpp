#include "reward/answers/plain_words.h"

#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

// If two wordings have the same beginning, the longer one is first. "of" is ambiguous ("3 of 4")
// and not listed.
constexpr Wording kWordings[] = {
    {"plus", Piece::kInfix, "+"},
    {"minus", Piece::kSign, "-"},
    {"negative", Piece::kPrefix, "-"},
    {"times", Piece::kInfix, "*"},
    {"multiplied by", Piece::kInfix, "*"},
    {"divided by", Piece::kInfix, "/"},
    {"over", Piece::kInfix, "/"},
    {"raised to the power of", Piece::kInfix, "^"},
    {"raised to the power", Piece::kInfix, "^"},
    {"to the power of", Piece::kInfix, "^"},
    {"to the power", Piece::kInfix, "^"},
    {"to", Piece::kInfix, ":"},
    {"modulo", Piece::kInfix, "\\bmod"},
    {"mod", Piece::kInfix, "\\bmod"},
    {"out of", Piece::kInfix, "\\text{out of}"},
    {"of", Piece::kInfix, "\\text{of}"},
    {"in", Piece::kInfix, "\\text{in}"},
    {"by", Piece::kInfix, "\\text{by}"},
    {"choose", Piece::kInfix, "\\text{choose}"},
    {"square root of", Piece::kPrefix, "\\sqrt"},
    {"cube root of", Piece::kPrefix, "\\sqrt[3]"},
    {"squared", Piece::kSuffix, "^2"},
    {"cubed", Piece::kSuffix, "^3"},
    {"factorial", Piece::kSuffix, "!"},
    {"percent", Piece::kSuffix, "\\%"},
    {"per cent", Piece::kSuffix, "\\%"},
    {"degrees", Piece::kSuffix, "^\\circ"},
    {"degree", Piece::kSuffix, "^\\circ"},
    {"and a half", Piece::kSuffix, "+\\frac12"},
    {"and one half", Piece::kSuffix, "+\\frac12"},
    {"thirds", Piece::kSuffix, "/3"},
    {"hundred", Piece::kSuffix, " hundred"},
    {"thousand", Piece::kSuffix, " thousand"},
    {"million", Piece::kSuffix, " million"},
    {"billion", Piece::kSuffix, " billion"},
    {"trillion", Piece::kSuffix, " trillion"},
    {"dozen", Piece::kSuffix, " dozen"},
    {"pi", Piece::kOperand, "\\pi", true},
    {"infinity", Piece::kOperand, "\\infty", true},
    {"theta", Piece::kOperand, "\\theta"},
};

bool is_letter_at(std::string_view text, size_t at) {
  return at < text.size() &&
         ((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= 'A' && text[at] <= 'Z'));
}

}  // namespace

const Wording* find_wording(std::string_view text, size_t at, bool after_value) {
  for (const Wording& wording : kWordings) {
    if (!matches_word(text, at, wording.words)) continue;
    if (is_letter_at(text, at + wording.words.size())) continue;
    const bool behind = wording.role == Piece::kInfix || wording.role == Piece::kSuffix;
    if (after_value || !behind) return &wording;
  }
  return nullptr;
}

}  // namespace slimexx::reward
