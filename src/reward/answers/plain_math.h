// Mathematics in a sentence: "the ratio is 3 : 4", "2 1/2 cups", "the square root of 2", "3.2 x
// 10^5".
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reward/answers/formulas.h"

namespace slimexx::reward {

// All that binds to one value, so that no part of it is taken for the whole.
struct MathRun {
  size_t begin = 0, end = 0;  // in the text
  std::string latex;          // words of arithmetic as operators
  std::string name;           // "x" of "x = 5": the letter that it is the value of
  bool formula = false;       // one formula and nothing else
  bool negated = false;       // "not 5", "more than 5"
};

// The runs that have a digit or a formula, in order.
std::vector<MathRun> find_math(std::string_view text);

}  // namespace slimexx::reward
