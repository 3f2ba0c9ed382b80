#include "slimexx/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slimexx/base/strings.h"

namespace slimexx {
namespace {

constexpr size_t kMaxLines = 200;
constexpr size_t kSuffixBytes = 32;  // "... (18446744073709551615 bytes)"

// Size in bytes of the code point at the start of `text`; 0 if it is not valid UTF-8.
size_t code_point_bytes(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(4, text.size()); ++n) {
    if (is_valid_utf8(text.substr(0, n))) return n;
  }
  return 0;
}

// C0, DEL, C1, line and paragraph separators, and bidirectional controls.
bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escape(uint32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  return c < 0x100 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{:04x}", c);
}

// Returns the first code point of `text` (or an invalid byte) as shown, and removes it from `text`.
std::string take_shown(std::string_view& text) {
  const size_t n = code_point_bytes(text);
  const std::string_view taken = text.substr(0, std::max<size_t>(n, 1));
  text.remove_prefix(taken.size());
  if (n == 0) return escape(static_cast<unsigned char>(taken[0]));
  size_t position = 0;
  const uint32_t c = next_code_point(taken, position);
  return is_control(c) && c != '\t' ? escape(c) : std::string(taken);
}

}  // namespace

std::string make_printable(std::string_view text, size_t max_bytes) {
  const size_t room = max_bytes - kSuffixBytes;
  std::string out;
  size_t cut = 0;  // cut position if the text is too long
  for (std::string_view rest = text; !rest.empty();) {
    const std::string shown = take_shown(rest);
    if (out.size() + shown.size() <= room) cut = out.size() + shown.size();
    out += shown;
    if (out.size() > max_bytes)
      return out.substr(0, cut) + fmt::format("... ({} bytes)", text.size());
  }
  return out;
}

std::string make_printable_lines(std::string_view text, size_t max_line_bytes) {
  std::vector<std::string> lines;
  bool indent = false;  // all lines or none, to keep tables aligned
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (lines.size() + 1 == kMaxLines && end < text.size()) {
      lines.push_back(fmt::format("  ... ({} bytes in total)", text.size()));
      break;
    }
    lines.push_back(make_printable(text.substr(begin, end - begin), max_line_bytes));
    const std::string& line = lines.back();
    indent |= lines.size() > 1 && !line.empty() && !line.starts_with("  ");
    begin = end + 1;
  }
  std::string out = lines.empty() ? "" : lines[0];
  for (size_t i = 1; i < lines.size(); ++i)
    out += (indent && !lines[i].empty() ? "\n  " : "\n") + lines[i];
  return out;
}

}  // namespace slimexx
