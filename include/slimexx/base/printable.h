// Text from files, servers or names, made safe for a terminal and a log. Error and log_line apply
// it to all their texts, so their callers need not.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace slimexx {

// One line: control characters (a newline too), bidirectional controls and bytes that are not
// UTF-8 become \n, \x1b, \u202e; tabs stay. Text longer than `max_bytes` (at least 64) ends in
// "... (N bytes)", N being the size of `text`. Applied twice it changes nothing more.
std::string make_printable(std::string_view text, size_t max_bytes = 400);

// The same for each line of our own longer texts (tables, banners, lists of faults), which keep
// their newlines. A line after the first is indented by at least two spaces, so that none of them
// passes for a line of the program's own. At most 200 lines.
std::string make_printable_lines(std::string_view text, size_t max_line_bytes);

}  // namespace slimexx
