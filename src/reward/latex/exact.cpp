#include "reward/latex/exact.h"

#include <algorithm>

namespace slimexx::reward::latex {
namespace mp = boost::multiprecision;
namespace {

constexpr long kMaxFactorial = 1000;
constexpr long kMaxStirling = 64;
constexpr size_t kMaxDigits = 2400;

unsigned bit_length(const Integer& value) {
  return value == 0 ? 1 : static_cast<unsigned>(mp::msb(mp::abs(value))) + 1;
}

Integer power_of(Integer base, unsigned long exponent) {
  Integer result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result *= base;
    if (exponent > 1) base *= base;
  }
  return result;
}

std::optional<Rational> integer_power(const Rational& base, long exponent) {
  const unsigned long magnitude = exponent < 0 ? -static_cast<unsigned long>(exponent) : exponent;
  Integer top = mp::numerator(base), bottom = mp::denominator(base);
  const unsigned bits = std::max(bit_length(top), bit_length(bottom));
  // Powers of 0 and +-1 stay small; for all others the bit count must fit.
  const bool trivial = mp::abs(top) <= 1 && bottom == 1;
  if (!trivial && (magnitude > kMaxFoldedBits || bits * magnitude > kMaxFoldedBits)) return {};
  if (trivial) {
    if (top == 0 && exponent < 0) return {};
    return Rational(top == -1 && magnitude % 2 == 0 ? Integer(1) : top);
  }
  top = power_of(top, magnitude);
  bottom = power_of(bottom, magnitude);
  if (exponent < 0) std::swap(top, bottom);
  if (bottom < 0) {
    top = -top;
    bottom = -bottom;
  }
  return Rational(top, bottom);
}

Integer floor_of(const Rational& value) {
  const Integer top = mp::numerator(value), bottom = mp::denominator(value);
  Integer quotient = top / bottom;
  if (top < 0 && quotient * bottom != top) --quotient;
  return quotient;
}

// n (n - step) (n - 2 step) ...
std::optional<Rational> fold_factorial(const Rational& arg, long step) {
  const auto n = to_long(arg);
  if (!n || *n < 0 || *n > kMaxFactorial) return {};
  Integer product = 1;
  for (long k = *n; k > 1; k -= step) product *= k;
  return Rational(product);
}

// Stirling numbers by their recurrence: c(n, k) = c(n-1, k-1) + w c(n-1, k), where w is n - 1 for
// the permutations of n with k cycles, and k for the partitions of n into k parts.
std::optional<Rational> fold_stirling(const Rational& top, const Rational& bottom, bool cycles) {
  const auto n = to_long(top), k = to_long(bottom);
  if (!n || !k || *n < 0 || *k < 0 || *n > kMaxStirling) return {};
  std::vector<Integer> row(static_cast<size_t>(*n) + 2);
  row[0] = 1;
  for (long m = 1; m <= *n; ++m) {
    for (long j = m; j > 0; --j) row[j] = row[j - 1] + (cycles ? m - 1 : j) * row[j];
    row[0] = 0;
  }
  return *k > *n ? Rational(0) : Rational(row[static_cast<size_t>(*k)]);
}

std::optional<Rational> fold_binomial(const Rational& top, const Rational& bottom) {
  const auto n = to_long(top), k = to_long(bottom);
  if (!n || !k || *n < 0 || *k < 0 || *n > 100000) return {};
  if (*k > *n) return Rational(0);
  const long count = std::min(*k, *n - *k);
  if (count > kMaxFactorial) return {};
  Integer result = 1;
  for (long j = 1; j <= count; ++j) result = result * (*n - count + j) / j;
  return Rational(result);
}

std::optional<Rational> fold_integer_pair(const std::string& name, const Rational& a,
                                          const Rational& b) {
  if (!is_integer(a) || !is_integer(b)) return {};
  const Integer x = mp::numerator(a), y = mp::numerator(b);
  if (name == "gcd") return Rational(mp::gcd(x, y));
  if (name == "lcm") return Rational(mp::lcm(x, y));
  if (name == "stirling1" || name == "stirling2") return fold_stirling(a, b, name == "stirling1");
  if (name == "mod" && y != 0) return a - b * Rational(floor_of(a / b));
  return {};
}

}  // namespace

bool is_integer(const Rational& value) { return mp::denominator(value) == 1; }

bool is_small(const Rational& value) {
  return bit_length(mp::numerator(value)) <= kMaxFoldedBits &&
         bit_length(mp::denominator(value)) <= kMaxFoldedBits;
}

std::optional<long> to_long(const Rational& value) {
  if (!is_integer(value) || bit_length(mp::numerator(value)) > 31) return {};
  return mp::numerator(value).convert_to<long>();
}

std::optional<Integer> exact_root(const Integer& value, unsigned k) {
  if (value < 0 || k == 0) return {};
  if (value <= 1 || k == 1) return value;
  const unsigned bits = bit_length(value);
  if (k >= bits) return {};
  Integer low = 1, high = Integer(1) << (bits / k + 1);
  while (low < high) {
    const Integer middle = (low + high + 1) >> 1;
    if (power_of(middle, k) <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (power_of(low, k) != value) return {};
  return low;
}

std::optional<Rational> fold_power(const Rational& base, const Rational& exponent) {
  if (!is_small(base)) return {};
  if (is_integer(exponent)) {
    // Powers of 0 and +-1 fold for exponents of any size.
    if (base == 1) return base;
    const auto n = to_long(exponent);
    if (!n) return {};
    return integer_power(base, *n);
  }
  const auto top = to_long(Rational(mp::numerator(exponent)));
  const auto root = to_long(Rational(mp::denominator(exponent)));
  if (!top || !root || *root > 256) return {};
  const bool negative = base < 0;
  if (negative && *root % 2 == 0) return {};
  const Integer above = mp::abs(mp::numerator(base));
  const auto a = exact_root(above, static_cast<unsigned>(*root));
  const auto b = exact_root(mp::denominator(base), static_cast<unsigned>(*root));
  if (!a || !b) return {};
  return integer_power(Rational(negative ? Integer(-*a) : *a, *b), *top);
}

std::optional<Rational> fold_function(const std::string& name, const std::vector<Rational>& args) {
  if (args.size() == 1) {
    if (name == "factorial") return fold_factorial(args[0], 1);
    if (name == "factorial2") return fold_factorial(args[0], 2);
    if (name == "abs") return args[0] < 0 ? Rational(-args[0]) : args[0];
    if (name == "floor") return Rational(floor_of(args[0]));
    if (name == "ceil") return Rational(-floor_of(-args[0]));
    return {};
  }
  if (args.empty()) return {};
  if (name == "max") return *std::max_element(args.begin(), args.end());
  if (name == "min") return *std::min_element(args.begin(), args.end());
  if (args.size() > 2 && (name == "gcd" || name == "lcm")) {
    std::optional<Rational> result = args[0];
    for (size_t k = 1; k < args.size() && result; ++k) {
      result = fold_integer_pair(name, *result, args[k]);
      if (result && !is_small(*result)) result.reset();
    }
    return result;
  }
  if (args.size() != 2) return {};
  if (name == "binom") return fold_binomial(args[0], args[1]);
  return fold_integer_pair(name, args[0], args[1]);
}

std::optional<Rational> parse_decimal(const std::string& digits, const std::string& repeat) {
  if (digits.size() + repeat.size() > kMaxDigits) return {};
  const size_t point = digits.find('.');
  std::string all = digits;
  size_t places = 0;
  if (point != std::string::npos) {
    all.erase(point, 1);
    places = digits.size() - point - 1;
  }
  if (all.empty() && repeat.empty()) return {};
  // Boost would read digits after a leading zero as octal.
  auto to_integer = [](const std::string& text) {
    const size_t first = text.find_first_not_of('0');
    return first == std::string::npos ? Integer(0) : Integer(text.substr(first));
  };
  const Integer scale = power_of(Integer(10), places);
  Rational value(to_integer(all), scale);
  if (!repeat.empty()) {
    const Integer nines = power_of(Integer(10), repeat.size()) - 1;
    value += Rational(to_integer(repeat), nines * scale);
  }
  return value;
}

}  // namespace slimexx::reward::latex
