// The two normal forms by which `deepscaler` compares answers as strings. They follow the "mathd"
// and "sympy" rules of the graders that reasoning-RL data sets were filtered with.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::reward {

// Unifies LaTeX spellings: \dfrac12 and 1/2 -> \frac{1}{2}, \sqrt3 -> \sqrt{3}; drops units, \left,
// \right, degree, dollar and percent signs, and "x=".
std::string mathd_form(std::string_view answer);

// Plain text with operators: \frac{1}{2} -> 1/2, "3 1/2" -> 3+1/2; without units, $, % and spaces;
// in lower case, with integers in canonical form.
std::string sympy_form(std::string_view answer);

// The elements if the form is one flat (...) or [...], otherwise the form alone; none if it is
// empty.
std::vector<std::string> split_tuple(std::string_view form);

// LaTeX as plain text: \frac{a+b}{2} -> (a+b)/2, \sqrt{2} -> sqrt(2), \pi -> pi, \alpha -> its
// letter, \text{x} -> x. nullopt if groups or environments nest too deeply.
std::optional<std::string> latex_plain_text(std::string_view latex);

}  // namespace slimexx::reward
