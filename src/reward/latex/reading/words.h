// The vocabulary: functions, commands and their spellings, units, connectives.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reward/latex/node.h"

namespace slimexx::reward::latex {

bool is_function(std::string_view name);           // sin, log, gcd ...
bool is_connective(std::string_view word);         // and, or
bool is_unit_abbreviation(std::string_view word);  // cm, kg, mph: short runs after a number
bool is_greek(std::string_view name);
bool is_text_wrapper(std::string_view command);  // \text, \mbox ...: prose inside
bool is_text_switch(std::string_view command);   // \rm, \bf ...: prose up to the end of the group
bool is_layout(
    std::string_view command);  // \large, \left ...: layout commands without arguments (layout.cpp)
bool is_known_command(std::string_view command);

// A spelling that stands for another token: {"symbol", "<="} for "leq". Empty kind: none.
struct Spelling {
  char kind = 0;  // 's' symbol, 'c' command, 'n' name, 'w' word
  std::string_view text;
};
Spelling spelling_of_command(std::string_view command);

// The LaTeX for a non-ASCII character of mathematics, or nullopt.
std::optional<std::string_view> latex_of_code_point(uint32_t code_point);

// ---- units.cpp ----

// One spelling per unit: "inches" -> "inch", "m/s" and "meters per second" -> "meter second^-1".
std::string canonical_unit(std::string_view unit);
bool is_known_unit(std::string_view canonical);  // or a magnitude
bool is_unit_letter(std::string_view name);      // m, g, s ...; and Omega

// 1000000 for "million", 12 for "dozens"; nullopt for other words.
std::optional<Rational> magnitude_of(std::string_view word);
// The product of the letters of a canonical unit whose parts have letters: m s^-1. Null for others.
Ref product_of_unit_letters(std::string_view canonical);

}  // namespace slimexx::reward::latex
