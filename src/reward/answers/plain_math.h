// Mathematics in a sentence: "the ratio is 3 : 4", "2 1/2 cups", "the square root of 2", "3.2 x
// 10^5".
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reward/answers/formulas.h"

namespace slimexx::reward {

// All text that belongs to one value, so that no part is mistaken for the whole value.
struct MathRun {
  size_t begin = 0, end = 0;  // in the text
  std::string latex;          // words of arithmetic as operators
  std::string name;           // "x" in "x = 5": the letter with this value
  bool formula = false;       // exactly one formula
  bool negated = false;       // "not 5", "more than 5"
};

// The runs that have a digit or a formula, in order.
std::vector<MathRun> find_math(std::string_view text);

}  // namespace slimexx::reward
