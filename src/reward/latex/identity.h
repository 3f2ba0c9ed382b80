// Tests whether two expressions are equal for all values of their variables. Each of these tests is
// sound by itself:
//   exact     both fold to the same rational number
//   modular   equal in F_p[i] for random primes 2^60 < p < 2^61 and random values of the variables;
//             pi, e and every function value are indeterminates too, except for a few laws of
//             factorials, binomials, floors, gcd, max ...; roots of rationals are taken in the
//             group of quadratic residues, where a^(1/n) is unique and multiplicative as it is on
//             the positive reals
//   numeric   equal to 70 of 100 digits at every one of many random points; refused wherever digits
//             would be lost (a term 1e30 times smaller than its neighbour, long literals)
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "reward/latex/node.h"

namespace slimexx::reward::latex {

// Steps left; every evaluation counts its nodes. A test that runs out says "not equal".
struct Budget {
  long steps = 400000;
  bool spend(long count) {
    steps -= count;
    return steps > 0;
  }
};

enum class Proof { kNone, kExact, kModular, kNumeric };

// kNone: not equal, or equality not proven.
Proof prove_equal(const Ref& a, const Ref& b, Budget& budget);

// Whether f = c g for a constant c != 0 (c > 0 if `positive`), and neither is 0 everywhere.
bool is_proportional(const Ref& f, const Ref& g, bool positive, Budget& budget);

// Sign of a real constant; nullopt if it is not real, not constant or not certain.
std::optional<int> sign_of(const Ref& node, Budget& budget);

// The modular and the numeric test, for identity.cpp. nullopt: the test does not apply.
std::optional<bool> equal_modular(const Ref& a, const Ref& b, Budget& budget);
std::optional<bool> proportional_modular(const Ref& f, const Ref& g, Budget& budget);
std::optional<bool> equal_numeric(const Ref& a, const Ref& b, Budget& budget);
std::optional<bool> proportional_numeric(const Ref& f, const Ref& g, Budget& budget);
std::optional<int> numeric_sign(const Ref& node, Budget& budget);
// Sign of f g at points where both are real and nonzero; nullopt if it changes or is never found.
std::optional<int> sign_of_product(const Ref& f, const Ref& g, Budget& budget);

uint64_t mix_bits(uint64_t a, uint64_t b);
uint64_t hash_text(const std::string& text);

}  // namespace slimexx::reward::latex
