// Decides for `deepscaler` whether two answers are equal: identical mathd forms, or equal by the
// sympy rules.
#pragma once
#include <string_view>

#include "reward/graders.h"

namespace slimexx::reward {

Equality compare_mathd(std::string_view truth, std::string_view given);

// Equal if the sympy forms are identical; otherwise compares tuple elements. An integer equals only
// itself (2^3 does not answer 8: the problem asked for the number). Other answers are compared by
// exact value.
Equality compare_sympy(std::string_view truth, std::string_view given);

}  // namespace slimexx::reward
