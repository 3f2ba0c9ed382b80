// The identity test in F_p[i]; identity.h says why it is sound.
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "reward/latex/exact.h"
#include "reward/latex/identity.h"

namespace slimexx::reward::latex {
namespace {

using U64 = uint64_t;
using U128 = unsigned __int128;

U64 multiply(U64 a, U64 b, U64 p) { return static_cast<U64>(static_cast<U128>(a) * b % p); }

U64 power(U64 base, U64 exponent, U64 p) {
  U64 result = 1;
  for (; exponent; exponent >>= 1, base = multiply(base, base, p)) {
    if (exponent & 1) result = multiply(result, base, p);
  }
  return result;
}

// Deterministic for 64 bits with these bases (Sorenson and Webster 2015).
bool is_prime(U64 n) {
  static constexpr U64 kBases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  for (U64 q : kBases) {
    if (n % q == 0) return n == q;
  }
  U64 odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (U64 base : kBases) {
    U64 x = power(base, odd, n);
    bool composite = x != 1 && x != n - 1;
    for (int k = 1; composite && k < twos; ++k) {
      x = multiply(x, x, n);
      composite = x != n - 1;
    }
    if (composite) return false;
  }
  return true;
}

int jacobi(U64 a, U64 n) {
  int sign = 1;
  for (a %= n; a != 0; a %= n) {
    while (a % 2 == 0) {
      a /= 2;
      if (n % 8 == 3 || n % 8 == 5) sign = -sign;
    }
    std::swap(a, n);
    if (a % 4 == 3 && n % 4 == 3) sign = -sign;
  }
  return n == 1 ? sign : 0;
}

constexpr size_t kMaxRadicandPrimes = 7;
constexpr long kMaxRootDegree = 16;
constexpr unsigned kTrialLimit = 1000;

// The primes of a radicand. False where they cannot all be found: below kTrialLimit by division;
// what is left is a prime or a product of two different ones if it is small and no square.
bool collect_primes(Integer value, std::set<U64>& primes) {
  if (value < 0) value = -value;
  for (unsigned q = 2; q < kTrialLimit && value > 1; ++q) {
    if (value % q != 0) continue;
    primes.insert(q);
    while (value % q == 0) value /= q;
  }
  if (value <= 1) return true;
  if (value > Integer(kTrialLimit) * kTrialLimit * kTrialLimit || exact_root(value, 2))
    return false;
  primes.insert(value.convert_to<U64>());
  return true;
}

bool collect_radicands(const Ref& node, std::set<U64>& primes) {
  if (node->kind == Kind::kPow && is_number(node->args[0]) && is_number(node->args[1]) &&
      !is_integer(node->args[1]->value)) {
    const Rational& base = node->args[0]->value;
    if (!collect_primes(numerator(base), primes) || !collect_primes(denominator(base), primes)) {
      return false;
    }
    return primes.size() <= kMaxRadicandPrimes;
  }
  return std::all_of(node->args.begin(), node->args.end(),
                     [&](const Ref& arg) { return collect_radicands(arg, primes); });
}

// p = 3 mod 4 (so -1 has no root and F_p[i] is a field), all `residues` squares mod p, and every
// degree to kMaxRootDegree prime to the odd order (p - 1) / 2 of the squares, up to its powers
// of 2.
U64 find_prime(U64 seed, const std::set<U64>& residues) {
  for (U64 p = ((seed >> 3) | (U64{1} << 60)) | 3;; p += 4) {
    const U64 half = (p - 1) / 2;
    if (half % 3 == 0 || half % 5 == 0 || half % 7 == 0 || half % 11 == 0 || half % 13 == 0)
      continue;
    if (std::all_of(residues.begin(), residues.end(), [&](U64 q) { return jacobi(q, p) == 1; }) &&
        is_prime(p)) {
      return p;
    }
  }
}

U64 inverse_mod(U64 a, U64 n) {
  __int128 t = 0, next_t = 1, r = n, next_r = a % n;
  while (next_r != 0) {
    const __int128 q = r / next_r;
    t = std::exchange(next_t, t - q * next_t);
    r = std::exchange(next_r, r - q * next_r);
  }
  return static_cast<U64>(t < 0 ? t + n : t);
}

struct Element {
  U64 re = 0, im = 0;
  auto operator<=>(const Element&) const = default;
};

// How far apart n and m may be for n! / m! to be multiplied out.
constexpr U64 kMaxShift = 100;

class Evaluator {
 public:
  Evaluator(U64 p, U64 constants, U64 variables, Budget& budget)
      : p_(p), constants_(constants), variables_(variables), budget_(budget) {}

  std::optional<Element> evaluate(const Ref& node) {
    if (!budget_.spend(1)) return std::nullopt;
    switch (node->kind) {
      case Kind::kNumber:
        return rational(node->value);
      case Kind::kSymbol:
        if (node->name == "i") return Element{0, 1};
        if (node->name == "infty") return std::nullopt;  // obeys no field's rules
        return random(mix_bits(is_constant_name(node->name) ? constants_ : variables_,
                               hash_text(node->name)));
      case Kind::kAdd:
      case Kind::kMul:
        return fold(*node);
      case Kind::kPow:
        return raise(*node);
      case Kind::kCall:
        return call(*node);
      default:
        return std::nullopt;
    }
  }

  Element product(Element a, Element b) const {
    const U64 re = multiply(a.re, b.re, p_) + p_ - multiply(a.im, b.im, p_);
    const U64 im = multiply(a.re, b.im, p_) + multiply(a.im, b.re, p_);
    return {re % p_, im % p_};
  }

 private:
  Element random(U64 key) const { return {mix_bits(key, 1) % p_, 0}; }

  std::optional<Element> rational(const Rational& value) const {
    Integer top = numerator(value) % p_;
    if (top < 0) top += p_;
    const U64 bottom = Integer(denominator(value) % p_).convert_to<U64>();
    if (bottom == 0) return std::nullopt;
    return Element{multiply(top.convert_to<U64>(), inverse_mod(bottom, p_), p_), 0};
  }

  std::optional<Element> fold(const Node& node) {
    const bool sum = node.kind == Kind::kAdd;
    Element result{sum ? U64{0} : U64{1}, 0};
    for (const Ref& arg : node.args) {
      const auto value = evaluate(arg);
      if (!value) return std::nullopt;
      result = sum ? Element{(result.re + value->re) % p_, (result.im + value->im) % p_}
                   : product(result, *value);
    }
    return result;
  }

  std::optional<Element> invert(Element a) const {
    const U64 norm = (multiply(a.re, a.re, p_) + multiply(a.im, a.im, p_)) % p_;
    if (norm == 0) return std::nullopt;
    const U64 scale = inverse_mod(norm, p_);
    return Element{multiply(a.re, scale, p_), multiply((p_ - a.im) % p_, scale, p_)};
  }

  // The unit group of F_p[i] has order p^2 - 1: exponents of any size reduce by it.
  std::optional<Element> integer_power(Element base, Integer exponent) {
    if (!budget_.spend(200)) return std::nullopt;
    if (exponent < 0) {
      const auto inverse = invert(base);
      if (!inverse) return std::nullopt;
      base = *inverse;
      exponent = -exponent;
    }
    if (base == Element{}) return exponent == 0 ? Element{1, 0} : base;
    U128 bits = Integer(exponent % (Integer(p_) * p_ - 1)).convert_to<U128>();
    Element result{1, 0};
    for (; bits; bits >>= 1, base = product(base, base)) {
      if (bits & 1) result = product(result, base);
    }
    return result;
  }

  // |base|^exponent in the group of squares, for a rational base whose primes all are squares.
  std::optional<Element> root(const Rational& base, const Rational& exponent) {
    const auto degree = to_long(Rational(denominator(exponent)));
    if (!degree || *degree > kMaxRootDegree) return std::nullopt;
    const bool negative = base < 0;
    if (negative && *degree % 2 == 0 && *degree != 2) return std::nullopt;
    const auto positive = rational(negative ? Rational(-base) : base);
    if (!positive || positive->re == 0) return std::nullopt;
    const U64 half = (p_ - 1) / 2;
    const U64 step = inverse_mod(static_cast<U64>(*degree) % half, half);
    const Element unit{power(positive->re, step, p_), 0};
    auto result = integer_power(unit, numerator(exponent));
    if (!result || !negative) return result;
    // sqrt(-a)^k = i^k sqrt(a)^k; an odd root of a negative number is the negative real one.
    const auto sign = *degree == 2 ? integer_power({0, 1}, numerator(exponent))
                                   : integer_power({p_ - 1, 0}, numerator(exponent));
    return sign ? std::optional(product(*result, *sign)) : std::nullopt;
  }

  std::optional<Element> raise(const Node& node) {
    const Ref& base = node.args[0];
    const Ref& exponent = node.args[1];
    if (is_number(exponent) && !is_integer(exponent->value) && is_number(base)) {
      if (auto value = root(base->value, exponent->value)) return value;
    }
    const auto value = evaluate(base);
    if (!value) return std::nullopt;
    if (is_number(exponent) && is_integer(exponent->value)) {
      return integer_power(*value, numerator(exponent->value));
    }
    const auto raised = evaluate(exponent);
    if (!raised) return std::nullopt;
    return opaque("^", {*value, *raised});
  }

  Element opaque(const std::string& name, const std::vector<Element>& args) const {
    U64 key = mix_bits(constants_, hash_text(name));
    for (const Element& arg : args) key = mix_bits(mix_bits(key, arg.re), arg.im);
    return random(key);
  }

  std::optional<Element> call(const Node& node) {
    if (node.name == "undefined" || node.name == "pm" || node.name == "mp") return std::nullopt;
    static const std::set<std::string> kSymmetric = {"max", "min", "gcd", "lcm"};
    const bool symmetric = kSymmetric.count(node.name) > 0;
    std::vector<Element> args;
    if (!evaluate_all(node, symmetric, args)) return std::nullopt;
    if (symmetric) return symmetric_function(node.name, std::move(args));
    if (node.name == "percent") return product(args[0], *rational(Rational(1, 100)));
    if (node.name == "degree") {
      return product(product(args[0], *rational(Rational(1, 180))), *evaluate(make_symbol("pi")));
    }
    if (node.name == "factorial") return factorial(args[0]);
    if (node.name == "binom" && args.size() == 2) return binomial(args[0], args[1]);
    if (node.name == "floor") return floor(args[0]);
    if (node.name == "ceil") return difference({}, floor(difference({}, args[0])));
    return opaque(node.name, args);
  }

  // max(a, max(b, c)) has three arguments.
  bool evaluate_all(const Node& node, bool flatten, std::vector<Element>& out) {
    for (const Ref& arg : node.args) {
      if (flatten && is_call(arg, node.name.c_str())) {
        if (!evaluate_all(*arg, true, out)) return false;
        continue;
      }
      const auto value = evaluate(arg);
      if (!value) return false;
      out.push_back(*value);
    }
    return true;
  }

  // ---- laws of functions whose values are indeterminates otherwise
  // --------------------------------

  // Neither order nor repetition matters. gcd(ka, kb) = k gcd(a, b), and lcm(a, b) gcd(a, b) = a b.
  std::optional<Element> symmetric_function(const std::string& name, std::vector<Element> args) {
    if (name == "lcm" && args.size() == 2) {
      const auto divisor = symmetric_function("gcd", args);
      const auto inverse = divisor ? invert(*divisor) : std::nullopt;
      return inverse ? std::optional(product(product(args[0], args[1]), *inverse)) : std::nullopt;
    }
    Element scale{1, 0};
    if (name == "gcd" || name == "lcm") {
      Element sum;
      for (const Element& arg : args) sum = difference(sum, difference({}, arg));
      const auto inverse = invert(sum);
      if (inverse) scale = sum;
      for (Element& arg : args) arg = inverse ? product(arg, *inverse) : arg;
    }
    std::sort(args.begin(), args.end());
    args.erase(std::unique(args.begin(), args.end()), args.end());
    return product(scale, args.size() == 1 ? args[0] : opaque(name, args));
  }

  // x as an earlier argument of the function, or x itself if there is none, and an integer.
  std::pair<Element, int64_t> split_shift(std::vector<Element>& earlier, const Element& x,
                                          U64 limit) {
    for (const Element& base : earlier) {
      const Element shift = difference(x, base);
      if (shift.im != 0) continue;
      if (shift.re <= limit) return {base, static_cast<int64_t>(shift.re)};
      if (p_ - shift.re <= limit) return {base, -static_cast<int64_t>(p_ - shift.re)};
    }
    earlier.push_back(x);
    return {x, 0};
  }

  // (x + 1)! = (x + 1) x!
  std::optional<Element> factorial(const Element& x) {
    if (!budget_.spend(static_cast<long>(factorials_.size()) + kMaxShift)) return std::nullopt;
    Element base, value{1, 0};
    int64_t shift = static_cast<int64_t>(x.re);  // from 0! = 1
    if (x.im != 0 || x.re > kMaxShift) {
      std::tie(base, shift) = split_shift(factorials_, x, kMaxShift);
      value = opaque("factorial", {base});
    }
    Element factors{1, 0};
    for (int64_t k = 1; k <= shift; ++k) factors = product(factors, add_integer(base, k));
    for (int64_t k = 0; k > shift; --k) factors = product(factors, add_integer(base, k));
    if (shift >= 0) return product(value, factors);
    const auto inverse = invert(factors);
    return inverse ? std::optional(product(value, *inverse)) : std::nullopt;
  }

  std::optional<Element> binomial(const Element& n, const Element& k) {
    const auto above = factorial(n), chosen = factorial(k), left = factorial(difference(n, k));
    const auto inverse = above && chosen && left ? invert(product(*chosen, *left)) : std::nullopt;
    return inverse ? std::optional(product(*above, *inverse)) : std::nullopt;
  }

  // floor(x + 1) = floor(x) + 1
  Element floor(const Element& x) {
    budget_.spend(static_cast<long>(floors_.size()));
    const auto [base, shift] = split_shift(floors_, x, U64{1} << 32);
    return add_integer(opaque("floor", {base}), shift);
  }

  Element add_integer(const Element& x, int64_t n) const {
    const U64 residue = n < 0 ? p_ - static_cast<U64>(-n) : static_cast<U64>(n);
    return {(x.re + residue) % p_, x.im};
  }

  Element difference(const Element& a, const Element& b) const {
    return {(a.re + p_ - b.re) % p_, (a.im + p_ - b.im) % p_};
  }

  U64 p_, constants_, variables_;
  Budget& budget_;
  std::vector<Element> factorials_, floors_;  // arguments that lie no integer apart
};

constexpr int kRounds = 3;

struct Rounds {
  std::array<U64, kRounds> primes{};
  bool usable = false;
};

Rounds choose_primes(const Ref& a, const Ref& b) {
  std::set<U64> residues;
  Rounds rounds;
  rounds.usable = collect_radicands(a, residues) && collect_radicands(b, residues);
  for (int k = 0; rounds.usable && k < kRounds; ++k) {
    rounds.primes[k] = find_prime(mix_bits(0x5EED, k), residues);
  }
  return rounds;
}

}  // namespace

std::optional<bool> equal_modular(const Ref& a, const Ref& b, Budget& budget) {
  const Rounds rounds = choose_primes(a, b);
  if (!rounds.usable || !budget.spend(500)) return std::nullopt;
  for (int k = 0; k < kRounds; ++k) {
    Evaluator evaluator(rounds.primes[k], mix_bits(11, k), mix_bits(13, k), budget);
    const auto x = evaluator.evaluate(a), y = evaluator.evaluate(b);
    if (!x || !y) return std::nullopt;
    if (!(*x == *y)) return false;
  }
  return true;
}

std::optional<bool> proportional_modular(const Ref& f, const Ref& g, Budget& budget) {
  const Rounds rounds = choose_primes(f, g);
  if (!rounds.usable || !budget.spend(500)) return std::nullopt;
  for (int k = 0; k < kRounds; ++k) {
    Evaluator here(rounds.primes[k], mix_bits(17, k), mix_bits(19, k), budget);
    Evaluator there(rounds.primes[k], mix_bits(17, k), mix_bits(23, k), budget);
    const auto f1 = here.evaluate(f), g1 = here.evaluate(g);
    const auto f2 = there.evaluate(f), g2 = there.evaluate(g);
    if (!f1 || !g1 || !f2 || !g2) return std::nullopt;
    if (*f1 == Element{} || *g1 == Element{}) return false;
    if (!(here.product(*f1, *g2) == here.product(*f2, *g1))) return false;
  }
  return true;
}

}  // namespace slimexx::reward::latex
