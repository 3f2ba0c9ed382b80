// Exact arithmetic on rationals. Every size is limited, so that results cannot grow without bound.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reward/latex/node.h"

namespace slimexx::reward::latex {

bool is_integer(const Rational& value);
bool is_small(const Rational& value);  // numerator and denominator have at most kMaxFoldedBits bits
std::optional<long> to_long(const Rational& value);  // an integer of magnitude below 2^31

// base^exponent if it is rational and small. An odd root of a negative number is the real root.
std::optional<Rational> fold_power(const Rational& base, const Rational& exponent);
// The k-th root of a nonnegative integer, if that root is an integer.
std::optional<Integer> exact_root(const Integer& value, unsigned k);

// Computes functions of rationals: factorial, factorial2 (n!!), binom, stirling1, stirling2, abs,
// floor, ceil, gcd, lcm, max, min, mod.
std::optional<Rational> fold_function(const std::string& name, const std::vector<Rational>& args);

// Digits such as "0012.50", at most one point. `repeat` digits follow for ever.
std::optional<Rational> parse_decimal(const std::string& digits, const std::string& repeat = "");

}  // namespace slimexx::reward::latex
