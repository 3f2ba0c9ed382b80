// The content of an answer apart from its notation: labels ("x =", "f(x) =", "S \in"), +- signs,
// lists and their labels, matrix arithmetic.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reward/latex/identity.h"
#include "reward/latex/node.h"

namespace slimexx::reward::latex {

// The structure as text, for labels and for equality of non-numbers.
std::string print_tree(const Ref& node);

// A name for an unknown: x, x_1, f(x), AB, |S|, (x, y), AB/CD, V_1 : V_2.
bool is_label(const Ref& node);

struct Labelled {
  std::string label;  // empty: none
  Ref label_node;
  Ref value;
};
// "x = 2 = 4/2" gives x and 4/2; "5 = x" gives x and 5; "x \in S" gives x and S; other answers have
// no label.
Labelled strip_label(const Ref& node);
// For 2\sqrt{3} \approx 3.46\text{ cm}: the exact value with the unit of the decimal, and the
// decimal (null if there is none).
struct Approximated {
  Ref exact, decimal;
};
Approximated split_approximation(const Ref& value);
// Whether the exact value and the decimal are constants that differ by more than rounding.
bool contradicts(const Approximated& both, Budget& budget);
// Whether `value` is the decimal, and the decimal is the exact value rounded to its last place.
bool is_rounded(const Approximated& both, const Ref& value, Budget& budget);

bool is_equation(const Ref& node);  // a relation with only "="
// The constant that an equation assigns to its other side: 293 for m + n = 256 + 37 = 293. Null if
// the equation assigns none: its constants differ, or it is a condition (x^2 - 4 = 0). A reference
// with coordinates (x + y = 10) is a line or curve, not the constant 10.
Ref named_value(const Node& equation, bool reference, Budget& budget);

// Gives the arguments of two definitions the same names, as in f(x) = ... and f(t) = ..., so that
// their values can be compared.
void unify_parameters(Labelled& a, Labelled& b);

// All answers that an answer with +- stands for: the answer itself if it has no +-; nullopt if
// there are too many.
std::optional<std::vector<Ref>> expand_signs(const Ref& node);

struct Collection {
  enum Shape { kSingle, kList, kSet } shape = kSingle;
  bool alternatives = false;  // joined by "or"
  std::vector<Labelled> elements;
};
// Expands lists, sets and +-; "p = 5, q = 2, p = 7, q = 2" becomes two tuples.
Collection collect(const Ref& node);

// Evaluates matrix sums, products, powers and determinants; null if the sizes do not fit.
Ref evaluate_matrices(const Ref& node);

}  // namespace slimexx::reward::latex
