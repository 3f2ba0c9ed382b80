#include "text/regex/char_class.h"

#include <utf8proc.h>

#include "text/regex/newer_characters.h"

namespace slimexx::text {
namespace {

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool in_range(uint32_t c, uint32_t low, uint32_t high) { return c >= low && c <= high; }

}  // namespace

bool is_white_space(uint32_t c) {
  return in_range(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         in_range(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t c) {
  if (in_range(c, 0x21, 0x2F) || in_range(c, 0x3A, 0x40) || in_range(c, 0x5B, 0x60) ||
      in_range(c, 0x7B, 0x7E)) {
    return true;
  }
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(uint32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_word(uint32_t c) {
  const auto kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) return true;
  if (kind == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Circled and squared letters: general category symbol, but Alphabetic.
  if (in_range(c, 0x24B6, 0x24E9) || in_range(c, 0x1F130, 0x1F149) ||
      in_range(c, 0x1F150, 0x1F169) || in_range(c, 0x1F170, 0x1F189)) {
    return true;
  }
  return kind == UTF8PROC_CATEGORY_CN &&
         (is_newer_character("L", c) || is_newer_character("M", c) || is_newer_character("Nd", c));
}

bool is_foldable(uint32_t c) {
  const auto kind = category(c);
  return c > 0x7F && kind <= UTF8PROC_CATEGORY_ME && kind != UTF8PROC_CATEGORY_LO;
}

size_t previous_character(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

}  // namespace slimexx::text
