// Numbers as people write them in a configuration.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::config {

// Both take [+-] digits [. digits] [e[+-]digits] with single underscores between digits, but no
// leading zero. On failure `reason` says why, e.g. "a number with the unit "k"".
std::optional<int64_t> parse_whole(std::string_view text, std::string& reason);
std::optional<double> parse_real(std::string_view text, std::string& reason);

// 010, which YAML 1.1 takes for eight and YAML 1.2 for ten: a number with a zero before a digit.
bool has_leading_zero(std::string_view text);

// true/false in the three spellings of YAML 1.2's core schema. YAML 1.1's yes/no/on/off are not.
std::optional<bool> parse_bool(std::string_view text);
bool is_legacy_bool(std::string_view text);  // yes, no, on, off, y, n

}  // namespace slimexx::config
