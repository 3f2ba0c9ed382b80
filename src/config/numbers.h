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

// Why a plain value, of a key that takes any JSON, is refused: a text here, and a boolean or a
// number to other readers of YAML, or a number that JSON cannot hold. Quotes make it a text.
struct Doubt {
  std::string reason, hint;
};
std::optional<Doubt> doubt_plain_value(std::string_view text);

// true/false in the three spellings of YAML 1.2's core schema. YAML 1.1's yes/no/on/off are not.
std::optional<bool> parse_bool(std::string_view text);
bool is_legacy_bool(std::string_view text);  // yes, no, on, off, y, n

}  // namespace slimexx::config
