// Small text functions that several modules need.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx {

// The nearest candidate within edit distance max(2, length/3) of `word`; for "did you mean".
std::optional<std::string> nearest_name(std::string_view word,
                                        const std::vector<std::string>& candidates);

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);  // ASCII white space at both ends
std::string to_lower_ascii(std::string_view text);

bool is_valid_utf8(std::string_view text);
// Replaces each maximal invalid subsequence with U+FFFD, like Python's errors="replace".
std::string replace_invalid_utf8(std::string_view text);
void append_utf8(std::string& out, uint32_t code_point);
// Decodes the code point at `position` of valid UTF-8 text and advances `position`.
uint32_t next_code_point(std::string_view text, size_t& position);

std::string format_bytes(double bytes);       // "1.5 GiB"
std::string format_duration(double seconds);  // "3h12m", "41.2s"
std::string format_count(double count);       // "151,552" below a million, "9.4 B" above

}  // namespace slimexx
