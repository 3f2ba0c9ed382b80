// Exact decimal numbers as text: no binary rounding, so long integers do not become equal.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::reward {

// The integer that a number such as "+5", "42.0", "1e3" or "007" equals, in canonical form; a
// number within 1e-7 of an integer gives that integer. nullopt for other text, other fractions, and
// magnitudes of 1e309 and more.
std::optional<std::string> integer_text(std::string_view number);

// Removes the thousands separators: commas between a digit and exactly three digits.
std::string strip_thousands_commas(std::string_view text);

// integer_text after strip_thousands_commas.
std::optional<std::string> integer_text_with_commas(std::string_view number);

}  // namespace slimexx::reward
