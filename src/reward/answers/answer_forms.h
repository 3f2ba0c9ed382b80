// The two normal forms by which `deepscaler` compares answers: strings, and equal if identical.
// Rules: "mathd" and "sympy path" of the graders that reasoning-RL datasets were filtered with.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::reward {

// LaTeX spellings made one: \dfrac12 and 1/2 -> \frac{1}{2}, \sqrt3 -> \sqrt{3}, units, \left,
// \right, degree, dollar and percent signs dropped, "x=" dropped.
std::string mathd_form(std::string_view answer);

// Plain text with operators: \frac{1}{2} -> 1/2, "3 1/2" -> 3+1/2, units, $ and % dropped, numbers
// that are integers in canonical form, lower case, no spaces.
std::string sympy_form(std::string_view answer);

// Elements of a form that is one flat (...) or [...], else the form alone; none of an empty form.
std::vector<std::string> split_tuple(std::string_view form);

// LaTeX as plain text: \frac{a+b}{2} -> (a+b)/2, \sqrt{2} -> sqrt(2), \pi -> pi, \alpha -> its
// letter, \text{x} -> x. Null where groups or environments nest too deeply.
std::optional<std::string> latex_plain_text(std::string_view latex);

}  // namespace slimexx::reward
