#include "config/numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "config/faults.h"
#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

// value = (negative ? -1 : 1) * digits * 10^exponent, exactly as written.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Appends digits with single underscores between them; false if there is none.
bool take_digits(std::string_view& text, std::string& out) {
  const size_t before = out.size();
  while (!text.empty()) {
    if (is_digit(text[0])) {
      out += text[0];
    } else if (!(text[0] == '_' && out.size() > before && text.size() > 1 && is_digit(text[1]))) {
      break;
    }
    text.remove_prefix(1);
  }
  return out.size() > before;
}

// Reads the longest number at the front of `text` and removes it from `text`.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal number;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    number.negative = text[0] == '-';
    text.remove_prefix(1);
  }
  bool any = take_digits(text, number.digits);
  if (!text.empty() && text[0] == '.') {
    const size_t whole = number.digits.size();
    text.remove_prefix(1);
    any = take_digits(text, number.digits) || any;
    number.exponent = -static_cast<int64_t>(number.digits.size() - whole);
  }
  if (!any) return std::nullopt;
  std::string_view rest = text;
  if (!rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
    rest.remove_prefix(1);
    const bool negative = !rest.empty() && rest[0] == '-';
    if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) rest.remove_prefix(1);
    std::string digits;
    if (take_digits(rest, digits)) {
      int64_t value = 0;
      for (const char c : digits) value = std::min<int64_t>(value * 10 + (c - '0'), 100000000);
      number.exponent += negative ? -value : value;
      text = rest;
    }
  }
  return number;
}

// True for numbers such as 010, which is eight in YAML 1.1 and ten in YAML 1.2.
bool has_leading_zero(std::string_view text) {
  std::string_view rest = text;
  if (!take_decimal(rest) || !rest.empty()) return false;
  if (text[0] == '+' || text[0] == '-') text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && (is_digit(text[1]) || text[1] == '_');
}

bool is_not_finite(std::string_view lower) {
  if (!lower.empty() && (lower[0] == '+' || lower[0] == '-')) lower.remove_prefix(1);
  return lower == ".inf" || lower == ".nan" || lower == "inf" || lower == "nan" ||
         lower == "infinity";
}

// True for 0x1F, 0o17, 0b101; a sign and underscores are allowed.
bool is_not_decimal(std::string_view lower) {
  if (!lower.empty() && (lower[0] == '+' || lower[0] == '-')) lower.remove_prefix(1);
  if (lower.size() < 3 || lower[0] != '0') return false;
  const char* digits = lower[1] == 'x'   ? "0123456789abcdef_"
                       : lower[1] == 'o' ? "01234567_"
                       : lower[1] == 'b' ? "01_"
                                         : "";
  return lower.find_first_not_of(digits, 2) == std::string_view::npos;
}

std::optional<Decimal> parse_decimal(std::string_view text, std::string& reason) {
  const std::string_view all = text;
  const std::string lower = to_lower_ascii(all);
  auto number = take_decimal(text);
  if (is_not_finite(lower)) {
    reason = fmt::format("is {}, not a finite number", quote_value(all));
    return std::nullopt;
  }
  if (!number) {
    reason = fmt::format("is the text {}", quote_value(all));
    return std::nullopt;
  }
  if (!text.empty()) {
    reason = is_not_decimal(lower) || lower.starts_with("0x") || lower.starts_with("0o") ||
                     lower.starts_with("0b")
                 ? fmt::format("is {}, which is not decimal", quote_value(all))
                 : fmt::format("is {}, a number followed by {}", quote_value(all),
                               quote_value(trim(text)));
    return std::nullopt;
  }
  if (has_leading_zero(all)) {
    reason = fmt::format("is {}, which some YAML parsers read as octal", quote_value(all));
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::optional<int64_t> parse_whole(std::string_view text, std::string& reason) {
  auto number = parse_decimal(text, reason);
  if (!number) return std::nullopt;
  std::string& digits = number->digits;
  while (digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++number->exponent;
  }
  if (digits == "0") return 0;
  if (number->exponent < 0) {
    reason = fmt::format("is {}, not a whole number", quote_value(text));
    return std::nullopt;
  }
  uint64_t value = 0;
  const uint64_t limit = uint64_t{std::numeric_limits<int64_t>::max()} + number->negative;
  const auto append = [&](uint64_t digit) {
    if (value > (limit - digit) / 10) return false;
    value = value * 10 + digit;
    return true;
  };
  bool fits = true;
  for (const char c : digits) fits = fits && append(static_cast<uint64_t>(c - '0'));
  for (int64_t i = 0; fits && i < number->exponent; ++i) fits = append(0);
  if (!fits) {
    reason = fmt::format("is {}, which does not fit in 64 bits", quote_value(text));
    return std::nullopt;
  }
  return static_cast<int64_t>(number->negative ? 0 - value : value);
}

std::optional<double> parse_real(std::string_view text, std::string& reason) {
  const auto number = parse_decimal(text, reason);
  if (!number) return std::nullopt;
  const std::string plain =
      fmt::format("{}{}e{}", number->negative ? "-" : "", number->digits, number->exponent);
  double value = 0;
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value)) {
    reason = fmt::format("is {}, which is outside the range of a double", quote_value(text));
    return std::nullopt;
  }
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

std::optional<Doubt> doubt_plain_value(std::string_view text) {
  if (is_legacy_bool(text))
    return Doubt{fmt::format("is {}, a boolean of YAML 1.1", quote_value(text)),
                 "the YAML 1.1 booleans yes/no/on/off are not supported; write true or false, or "
                 "quote the word if it is text"};
  const std::string lower = to_lower_ascii(text);
  std::string_view rest = text;
  const bool is_number = take_decimal(rest) && rest.empty();
  if (!is_number && !is_not_finite(lower) && !is_not_decimal(lower)) return std::nullopt;
  const bool is_real = text.find_first_of(".eE") != std::string_view::npos;
  std::string reason;
  const bool is_read = is_number && !is_real ? parse_whole(text, reason).has_value()
                                             : parse_real(text, reason).has_value();
  if (is_read) return std::nullopt;
  return Doubt{reason, "write a finite decimal number, or quote it if it is text"};
}

bool is_legacy_bool(std::string_view text) {
  const std::string lower = to_lower_ascii(text);
  return lower == "yes" || lower == "no" || lower == "on" || lower == "off" || lower == "y" ||
         lower == "n";
}

}  // namespace slimexx::config
