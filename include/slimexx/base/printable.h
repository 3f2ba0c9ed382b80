// Makes text from files, servers or names safe for terminals and logs. Error and log_line make all
// their texts printable, so callers need not.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace slimexx {

// As one line: control characters (including newlines), bidirectional controls and invalid UTF-8
// bytes become
// , \x1b, \u202e; tabs stay. Text longer than `max_bytes` (at least 64) ends in "... (N bytes)",
// with N the size of `text`. Idempotent.
std::string make_printable(std::string_view text, size_t max_bytes = 400);

// Makes each line of the program's own longer texts (tables, banners, lists of errors) printable;
// keeps newlines. Indents each line after the first by at least two spaces, so that none of them
// looks like a separate log line. At most 200 lines.
std::string make_printable_lines(std::string_view text, size_t max_line_bytes);

}  // namespace slimexx
