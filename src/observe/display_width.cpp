#include <utf8proc.h>

#include <string>
#include <vector>

#include "slimexx/base/strings.h"
#include "slimexx/observe/console.h"

namespace slimexx::observe {
namespace {

// A code point as displayed in a cell: printable text and its width in columns.
struct Glyph {
  std::string text;
  int64_t width = 0;
  bool joins = false;  // zero-width joiner: the next code point joins this glyph
};

constexpr uint32_t kZeroWidthJoiner = 0x200D;
constexpr uint32_t kEmojiSelector = 0xFE0F;

bool is_direction_mark(uint32_t code) {
  return code == 0x200E || code == 0x200F || code == 0x061C || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

Glyph make_glyph(uint32_t code) {
  Glyph glyph;
  if (code == '\n') return {"\xE2\x86\xB5", 1, false};  // U+21B5, arrow of the return key
  if (code == '\t') return {"\xE2\x86\x92", 1, false};  // U+2192, arrow
  if (code < 0x20) code += 0x2400;                      // control pictures
  if (code == 0x7F) code = 0x2421;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  // Direction marks, which would reorder the rest of the line, other control characters, line
  // separators and code points without a glyph.
  if (is_direction_mark(code) || category == UTF8PROC_CATEGORY_CC ||
      category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP ||
      category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CO)
    return {"\xEF\xBF\xBD", 1, false};  // U+FFFD
  append_utf8(glyph.text, code);
  glyph.width = utf8proc_charwidth(static_cast<utf8proc_int32_t>(code));
  glyph.joins = code == kZeroWidthJoiner;
  return glyph;
}

// Splits into glyphs with their combining marks. A code point after a zero-width joiner has no
// width, as on terminals that join emoji.
std::vector<Glyph> split_glyphs(std::string_view utf8) {
  const std::string valid = replace_invalid_utf8(utf8);
  std::vector<Glyph> glyphs;
  for (size_t position = 0; position < valid.size();) {
    const uint32_t code = next_code_point(valid, position);
    Glyph glyph = make_glyph(code);
    if (!glyphs.empty() && (glyph.width == 0 || glyphs.back().joins)) {
      glyphs.back().text += glyph.text;
      glyphs.back().joins = glyph.joins;
      if (code == kEmojiSelector && glyphs.back().width == 1) glyphs.back().width = 2;
    } else {
      glyphs.push_back(std::move(glyph));
    }
  }
  return glyphs;
}

}  // namespace

int64_t display_width(std::string_view utf8) {
  int64_t width = 0;
  for (const Glyph& glyph : split_glyphs(utf8)) width += glyph.width;
  return width;
}

std::string fit_text(std::string_view utf8, int64_t width, bool keep_tail) {
  if (width <= 0) return "";
  // Cut very long texts first: a column holds few code points, and measuring all would be slow.
  const size_t enough = static_cast<size_t>(width) * 16 + 256;
  const bool long_text = utf8.size() > enough;
  if (long_text) utf8 = keep_tail ? utf8.substr(utf8.size() - enough) : utf8.substr(0, enough);
  if (long_text && keep_tail)
    while (!utf8.empty() && (static_cast<unsigned char>(utf8[0]) & 0xC0) == 0x80)
      utf8.remove_prefix(1);
  const std::vector<Glyph> glyphs = split_glyphs(utf8);
  int64_t total = 0;
  for (const Glyph& glyph : glyphs) total += glyph.width;
  std::string out;
  if (total <= width && !long_text) {
    for (const Glyph& glyph : glyphs) out += glyph.text;
    return out;
  }
  const std::string ellipsis = "\xE2\x80\xA6";
  int64_t used = 1;
  if (keep_tail) {
    size_t first = glyphs.size();
    while (first > 0 && used + glyphs[first - 1].width <= width) used += glyphs[--first].width;
    out = ellipsis;
    for (size_t i = first; i < glyphs.size(); ++i) out += glyphs[i].text;
    return out;
  }
  for (const Glyph& glyph : glyphs) {
    if (used + glyph.width > width) break;
    used += glyph.width;
    out += glyph.text;
  }
  return out + ellipsis;
}

}  // namespace slimexx::observe
