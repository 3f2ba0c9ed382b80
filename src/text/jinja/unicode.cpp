#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "slimexx/base/strings.h"

namespace slimexx::text::jinja {
namespace {

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_cased(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}
bool is_alpha(uint32_t c) {
  const auto kind = category(c);
  return is_cased(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

void append_upper(std::string& out, uint32_t c) {
  if (c == 0xDF) {  // Python does not map sharp s to its capital letter
    out += "SS";
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}
void append_title(std::string& out, uint32_t c) {
  if (c == 0xDF) {
    out += "Ss";
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}
// `text` and `end` (after c) tell whether a sigma ends its word.
void append_lower(std::string& out, uint32_t c, std::string_view text, size_t end,
                  bool after_cased) {
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else if (c == 0x3A3) {
    size_t next = end;
    const bool before_cased = end < text.size() && is_cased(next_code_point(text, next));
    append_utf8(out, after_cased && !before_cased ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool in_class(uint32_t c, CharacterClass wanted) {
  const auto kind = category(c);
  switch (wanted) {
    case CharacterClass::kAlpha:
      return is_alpha(c);
    case CharacterClass::kAlnum:
      return is_alpha(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NO ||
             kind == UTF8PROC_CATEGORY_NL;
    case CharacterClass::kDecimal:
      return kind == UTF8PROC_CATEGORY_ND;
    case CharacterClass::kDigit:  // also superscripts, circled and dingbat digits
      return kind == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
             (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
             (c >= 0x2460 && c <= 0x2468);
    case CharacterClass::kNumeric:
      return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NO ||
             kind == UTF8PROC_CATEGORY_NL;
    case CharacterClass::kSpace:
      return is_space(c);
    case CharacterClass::kLower:
      return kind == UTF8PROC_CATEGORY_LL;
    case CharacterClass::kUpper:
      return kind == UTF8PROC_CATEGORY_LU;
  }
  return false;
}

// Python reads the decimal digits of all scripts. Each script has ten in a row that begin with
// zero.
std::string with_ascii_digits(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (c < 0x80 || !in_class(c, CharacterClass::kDecimal)) {
      append_utf8(out, c);
      continue;
    }
    uint32_t zero = c;
    while (in_class(zero - 1, CharacterClass::kDecimal)) --zero;
    out += static_cast<char>('0' + (c - zero) % 10);
  }
  return out;
}

}  // namespace

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_end(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(uint32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_word_character(uint32_t c) { return c == '_' || in_class(c, CharacterClass::kAlnum); }

size_t skip_space(std::string_view text, size_t from) {
  size_t i = from;
  while (i < text.size()) {
    size_t next = i;
    if (!is_space(next_code_point(text, next))) break;
    i = next;
  }
  return i;
}

std::string_view strip_space_left(std::string_view text) {
  return text.substr(skip_space(text, 0));
}

std::string_view strip_space_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    size_t position = begin;
    if (!is_space(next_code_point(text, position))) break;
    end = begin;
  }
  return text.substr(0, end);
}

std::string_view first_character(std::string_view text) {
  size_t end = 0;
  if (!text.empty()) next_code_point(text, end);
  return text.substr(0, end);
}

std::string upper_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, i));
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    append_lower(out, c, text, i, after_cased);
    after_cased = is_cased(c);
  }
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (after_cased) {
      append_lower(out, c, text, i, true);
    } else {
      append_title(out, c);
    }
    after_cased = is_cased(c);
  }
  return out;
}

std::string capitalize_case(std::string_view text) {
  std::string out;
  size_t i = 0;
  if (!text.empty()) append_title(out, next_code_point(text, i));
  return out + lower_case(text.substr(i));
}

std::string swap_case(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (in_class(c, CharacterClass::kUpper)) {
      append_lower(out, c, text, i, after_cased);
    } else {
      append_upper(out, c);
    }
    after_cased = is_cased(c);
  }
  return out;
}

bool all_characters(std::string_view text, CharacterClass wanted) {
  const bool case_only = wanted == CharacterClass::kLower || wanted == CharacterClass::kUpper;
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (in_class(c, wanted)) {
      found = true;
    } else if (!case_only || is_cased(c)) {  // islower and isupper ignore characters without case
      return false;
    }
  }
  return found;
}

bool is_title_case(std::string_view text) {
  bool after_cased = false, found = false;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    const auto kind = category(c);
    const bool upper = kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT;
    if ((upper && after_cased) || (kind == UTF8PROC_CATEGORY_LL && !after_cased)) return false;
    after_cased = is_cased(c);
    found = found || after_cased;
  }
  return found;
}

size_t byte_offset(const StringObject& string, int64_t index) {
  if (string.ascii()) return static_cast<size_t>(index);
  if (index >= string.length) return string.text.size();
  size_t offset = 0;
  for (int64_t seen = 0; offset < string.text.size(); ++offset) {
    if ((string.text[offset] & 0xC0) == 0x80) continue;
    if (seen++ == index) break;
  }
  return offset;
}

int64_t code_points_before(std::string_view text, size_t offset) {
  int64_t count = 0;
  for (size_t i = 0; i < offset; ++i) count += (text[i] & 0xC0) != 0x80;
  return count;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

std::optional<Int> parse_python_int(std::string_view input, int base) {
  const std::string digits = with_ascii_digits(input);
  std::string_view text = strip_space_right(strip_space_left(digits));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == 0 || base == marked)) {
      base = marked;
      text.remove_prefix(2);
      if (text[0] == '_') text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  if (text.empty()) return std::nullopt;
  Int value = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = digit_value(c);
    if (digit >= base || __builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      return std::nullopt;
    }
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_python_float(std::string_view input) {
  const std::string decimals = with_ascii_digits(input);
  const std::string_view text = strip_space_right(strip_space_left(decimals));
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      const bool between = i > 0 && i + 1 < text.size() && digit_value(text[i - 1]) < 10 &&
                           digit_value(text[i + 1]) < 10;
      if (!between) return std::nullopt;
    } else {
      digits += text[i];
    }
  }
  bool negative = false;
  size_t begin = 0;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    begin = 1;
  }
  const std::string word = to_lower_ascii(digits.substr(begin));
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (word.empty() || (digit_value(word[0]) > 9 && word[0] != '.')) return std::nullopt;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
    if (result.ptr != word.data() + word.size()) return std::nullopt;
    if (result.ec == std::errc::result_out_of_range) value = std::strtod(word.c_str(), nullptr);
    if (result.ec == std::errc::invalid_argument) return std::nullopt;
  }
  return negative ? -value : value;
}

}  // namespace slimexx::text::jinja
