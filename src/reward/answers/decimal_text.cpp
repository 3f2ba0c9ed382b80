#include "reward/answers/decimal_text.h"

#include <algorithm>
#include <cstdint>

#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

constexpr int64_t kMaxIntegerDigits = 309;  // doubles end below 1.8e308
constexpr int64_t kMaxExponent = 1'000'000'000;
constexpr size_t kTolerantDigits = 7;  // of the fraction: tolerance 1e-7

struct Decimal {
  bool negative = false;
  std::string digits;  // without leading zeros
  int64_t point = 0;   // value = 0.digits * 10^point
};

std::optional<int64_t> read_exponent(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  int64_t value = 0;
  for (const char c : text) value = std::min(value * 10 + (c - '0'), kMaxExponent);
  return negative ? -value : value;
}

std::optional<Decimal> read_decimal(std::string_view text) {
  text = trim_space(text);
  Decimal out;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    out.negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find_first_of("eE");
  int64_t exponent = 0;
  if (e != std::string_view::npos) {
    const auto read = read_exponent(text.substr(e + 1));
    if (!read) return std::nullopt;
    exponent = *read;
    text = text.substr(0, e);
  }
  const size_t dot = std::min(text.find('.'), text.size());
  out.digits = text.substr(0, dot);
  if (dot < text.size()) out.digits += text.substr(dot + 1);
  if (out.digits.empty() || !std::all_of(out.digits.begin(), out.digits.end(), is_digit)) {
    return std::nullopt;
  }
  const size_t zeros = std::min(out.digits.find_first_not_of('0'), out.digits.size());
  out.digits.erase(0, zeros);
  out.point = static_cast<int64_t>(dot) - static_cast<int64_t>(zeros) + exponent;
  return out;
}

std::string add_one(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  return "1" + digits;
}

}  // namespace

std::optional<std::string> integer_text(std::string_view number) {
  const auto decimal = read_decimal(number);
  if (!decimal) return std::nullopt;
  const int64_t size = static_cast<int64_t>(decimal->digits.size());
  if (size > 0 && decimal->point > kMaxIntegerDigits) return std::nullopt;
  if (size == 0 || decimal->point < -static_cast<int64_t>(kTolerantDigits)) return "0";
  const int64_t whole_digits = std::clamp<int64_t>(decimal->point, 0, size);
  std::string whole = decimal->digits.substr(0, static_cast<size_t>(whole_digits));
  if (decimal->point > size) whole.append(static_cast<size_t>(decimal->point - size), '0');
  std::string fraction(static_cast<size_t>(std::max<int64_t>(-decimal->point, 0)), '0');
  fraction += decimal->digits.substr(static_cast<size_t>(whole_digits));

  const size_t significant = fraction.find_first_not_of('0');
  const bool tiny = significant == std::string::npos || significant >= kTolerantDigits ||
                    (significant == kTolerantDigits - 1 && fraction[significant] == '1' &&
                     fraction.find_first_not_of('0', significant + 1) == std::string::npos);
  if (!tiny) {
    if (fraction.compare(0, kTolerantDigits, std::string(kTolerantDigits, '9')) != 0) {
      return std::nullopt;
    }
    whole = add_one(whole);
  }
  if (whole.empty() || whole == "0") return "0";
  return decimal->negative ? "-" + whole : whole;
}

std::string strip_thousands_commas(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const bool separator = text[i] == ',' && i > 0 && is_digit(text[i - 1]) &&
                           i + 3 < text.size() && is_digit(text[i + 1]) && is_digit(text[i + 2]) &&
                           is_digit(text[i + 3]) &&
                           (i + 4 == text.size() || !is_digit(text[i + 4]));
    if (!separator) out += text[i];
  }
  return out;
}

std::optional<std::string> integer_text_with_commas(std::string_view number) {
  return integer_text(strip_thousands_commas(number));
}

}  // namespace slimexx::reward
