// When `deepscaler` calls two answers equal: identical mathd forms, or equal by the sympy rules.
#pragma once
#include <string_view>

#include "reward/graders.h"

namespace slimexx::reward {

Equality compare_mathd(std::string_view truth, std::string_view given);

// Identical sympy forms; else tuple by tuple element, where an integer equals nothing but itself
// (2^3 is no answer to 8: the problem asked for the number) and all else is compared by exact
// value.
Equality compare_sympy(std::string_view truth, std::string_view given);

}  // namespace slimexx::reward
