#include "text/regex/regex_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "text/regex/char_class.h"

namespace slimexx::text {
namespace {

constexpr size_t kMaxRewrittenBytes = 1 << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

bool RegexReader::take(std::string_view text) {
  if (!starts_with(text)) return false;
  at_ += text.size();
  return true;
}

void RegexReader::skip_past(std::string_view text) {
  const size_t found = in_.find(text, at_);
  at_ = found == std::string_view::npos ? in_.size() : found + text.size();
}

std::string_view RegexReader::take_until(char end) {
  const size_t found = in_.find(end, at_);
  if (found == std::string_view::npos) refuse(fmt::format("what has no closing '{}'", end));
  const std::string_view text = in_.substr(at_, found - at_);
  at_ = found + 1;
  return text;
}

void RegexReader::refuse(const std::string& what) const {
  throw Error(ErrorCode::kInput,
              fmt::format("regular expression: {} at byte {} is not supported", what, at_),
              "write the pattern without it", where_);
}

void RegexReader::check_size(size_t rewritten_bytes) const {
  if (rewritten_bytes > kMaxRewrittenBytes)
    refuse("an expansion of the pattern to more than 1 MiB");
}

uint32_t RegexReader::read_code_point() {
  return peek() == '\\' ? read_escape() : next_code_point(in_, at_);
}

uint32_t RegexReader::read_escape() {
  const char c = peek(1);
  constexpr std::string_view kNames = "tnrfvae", kCodes = "\t\n\r\f\v\a\x1b";
  if (const size_t found = kNames.find(c); c != '\0' && found != std::string_view::npos) {
    skip(2);
    return static_cast<uint32_t>(kCodes[found]);
  }
  if (c == '\0') refuse(at_ + 1 < in_.size() ? "a NUL after a backslash" : "a trailing backslash");
  if (c == 'u' || c == 'x') return read_hexadecimal(c == 'u' ? 4 : 2);
  if (c == '0' && !is_digit(peek(2))) {
    skip(2);
    return 0;
  }
  if (is_letter(c) || is_digit(c)) refuse(fmt::format("the escape \\{}", c));
  skip(1);
  return next_code_point(in_, at_);
}

uint32_t RegexReader::read_hexadecimal(size_t max_digits) {
  const bool braced = max_digits == 2 && peek(2) == '{';
  const size_t begin = at_ + (braced ? 3 : 2);
  const size_t end = braced ? in_.find('}', begin) : begin + max_digits;
  if (end == std::string_view::npos) refuse("\\x{ without its closing '}'");
  const std::string_view field = in_.substr(begin, end - begin);
  uint32_t value = 0;
  const auto [rest, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  const auto digits = static_cast<size_t>(rest - field.data());
  const bool whole = max_digits == 2 && !braced ? digits > 0 : digits == field.size();
  if (error != std::errc() || !whole || (max_digits == 4 && digits != 4) || value > 0x10FFFF ||
      (value >= 0xD800 && value < 0xE000)) {
    refuse(max_digits == 4 ? "\\u without four hexadecimal digits of a character"
                           : "\\x without the hexadecimal digits of a character");
  }
  // Oniguruma takes such an escape for one byte of a character.
  if (max_digits == 2 && !braced && value > 0x7F) refuse("\\x80 to \\xff");
  at_ = begin + digits + (braced ? 1 : 0);
  return value;
}

std::optional<CharSet> RegexReader::read_set(bool in_class) {
  if (peek() != '\\') return std::nullopt;
  CharSet set;
  switch (peek(1) | 0x20) {
    case 'd':
      set = *posix_set("digit");
      break;
    case 'w':
      set = word_set(in_class);
      break;
    case 's':
      set = space_set();
      break;
    case 'h':
      set = *posix_set("xdigit");
      break;
    case 'p':
      return read_property(in_class);
    default:
      return std::nullopt;
  }
  set.negated = (peek(1) & 0x20) == 0;
  skip(2);
  return set;
}

CharSet RegexReader::read_property(bool in_class) {
  const bool negated = peek(1) == 'P';
  if (peek(2) != '{') refuse(fmt::format("\\{} without a name in braces", peek(1)));
  skip(3);
  const bool inverted = take("^");
  const std::string_view name = take_until('}');
  auto set = property_set(name, in_class);
  if (!set) refuse(fmt::format("the property {}", name));
  set->negated = (set->negated != negated) != inverted;
  return *set;
}

// When case is ignored, PCRE2 leaves properties as they are; Oniguruma adds the other cases to
// properties in a class.
void RegexReader::ignore_case_in(CharSet& set) const {
  if (set.cased || (set.negated && !set.folded.empty())) {
    refuse("a property that depends on case, in a class that ignores case,");
  }
  set.members += set.folded;
}

void RegexReader::read_class_item(ClassPattern& out, bool ignore_case) {
  std::optional<CharSet> set;
  if (take("[:")) {
    const bool negated = take("^");
    const std::string_view name = take_until(':');
    if ((set = posix_set(name))) set->negated = negated;
    if (!set || !take("]")) refuse(fmt::format("the class [:{}", name));
  } else {
    set = read_set(true);
  }
  if (set) {
    if (ignore_case) ignore_case_in(*set);
    if (peek() == '-' && peek(1) != ']') refuse("a range that begins with a class");
    out.add(*set);
    return;
  }
  if (peek() == '[') refuse("a class in a class");
  if (starts_with("&&")) refuse("an intersection of classes");
  const auto read = [&]() -> uint32_t { return take("\\b") ? '\b' : read_code_point(); };
  const uint32_t low = read();
  uint32_t high = low;
  if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
    skip(1);
    if (peek() == '[' || read_set(true)) refuse("a range that ends with a class");
    high = read();
  }
  if (low > high) refuse("an empty range");
  if (ignore_case && (is_foldable(high) || (low != high && high > 0x7F))) {
    refuse("a letter beyond ASCII, with case ignored,");
  }
  out.add_range(low, high);
}

std::string RegexReader::read_class(bool ignore_case) {
  ClassPattern out;
  const bool negated = take("^");
  for (bool first = true; first || peek() != ']'; first = false) {
    if (done()) refuse("a class without its closing ']'");
    read_class_item(out, ignore_case);
    check_size(out.bytes());
  }
  skip(1);
  return out.pattern(negated);
}

}  // namespace slimexx::text
