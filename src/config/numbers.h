// Parses numbers and booleans of a configuration.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::config {

// Both accept [+-] digits [. digits] [e[+-]digits] with single underscores between digits, but no
// leading zero. On failure `reason` has the cause, such as: is "4k", a number followed by "k".
std::optional<int64_t> parse_whole(std::string_view text, std::string& reason);
std::optional<double> parse_real(std::string_view text, std::string& reason);

// The reason to refuse an unquoted value of a key that accepts any JSON: this reader takes the
// value as text, but other YAML readers as a boolean or number; or JSON cannot hold the number. In
// quotes the value is accepted as text.
struct Doubt {
  std::string reason, hint;
};
std::optional<Doubt> doubt_plain_value(std::string_view text);

// true/false in the three spellings of YAML 1.2's core schema; not yes/no/on/off of YAML 1.1.
std::optional<bool> parse_bool(std::string_view text);
bool is_legacy_bool(std::string_view text);  // yes, no, on, off, y, n

}  // namespace slimexx::config
