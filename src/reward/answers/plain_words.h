// Words of arithmetic in a sentence: "times", "the square root of", "squared", "million".
#pragma once
#include <cstddef>
#include <string_view>

#include "reward/answers/plain_pieces.h"

namespace slimexx::reward {

struct Wording {
  std::string_view words;
  Piece::Role role;
  std::string_view latex;
  bool value = false;
};

// The wording that begins at `at`, ignoring case; null if there is none. Operators and suffixes are
// found only after a value.
const Wording* find_wording(std::string_view text, size_t at, bool after_value);

}  // namespace slimexx::reward
