// The vocabulary: functions, commands and their spellings, units, connectives.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::reward::latex {

bool is_function(std::string_view name);           // sin, log, gcd ...
bool is_connective(std::string_view word);         // and, or
bool is_unit_abbreviation(std::string_view word);  // cm, kg, mph: short runs after a number
bool is_greek(std::string_view name);
bool is_text_wrapper(std::string_view command);   // \text, \mbox ...: prose inside
bool is_style_wrapper(std::string_view command);  // \mathbf, \boxed ...: mathematics inside
bool is_spacing(std::string_view command);        // \left, \displaystyle, \quad is not one
bool is_known_command(std::string_view command);

// A command that stands for another token: {"symbol", "<="} of "leq". Empty kind: none.
struct Spelling {
  char kind = 0;  // 's' symbol, 'c' command, 'n' name, 'w' word
  std::string_view text;
};
Spelling spelling_of_command(std::string_view command);

// The LaTeX for a non-ASCII character of mathematics, or nullopt.
std::optional<std::string_view> latex_of_code_point(uint32_t code_point);

// One spelling per unit: "inches" -> "inch", "hrs" -> "hour"; words joined by one space, powers as
// "^2".
std::string canonical_unit(std::string_view unit);
bool is_known_unit(std::string_view canonical);

}  // namespace slimexx::reward::latex
