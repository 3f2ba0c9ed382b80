// The identity test in F_p[i]; identity.h explains why it is sound.
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
#include "reward/latex/prime_field.h"

namespace slimexx::reward::latex {
namespace {

constexpr size_t kMaxRadicandPrimes = 7;
constexpr unsigned kTrialLimit = 1000;

// Adds the prime factors of a radicand, or returns false if they cannot all be found. Primes below
// kTrialLimit are found by division. If the rest is small and not a square, it is a prime or a
// product of two different primes, and is added as one factor.
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

struct Element {
  U64 re = 0, im = 0;
  auto operator<=>(const Element&) const = default;
};

// Largest difference of n and m for which n! / m! is multiplied out.
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
        if (node->name == "infty") return std::nullopt;  // infinity is not an element of a field
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
    const bool is_sum = node.kind == Kind::kAdd;
    Element result{is_sum ? U64{0} : U64{1}, 0};
    for (const Ref& arg : node.args) {
      const auto value = evaluate(arg);
      if (!value) return std::nullopt;
      result = is_sum ? sum(result, *value) : product(result, *value);
    }
    return result;
  }

  std::optional<Element> invert(Element a) const {
    const U64 norm = (multiply(a.re, a.re, p_) + multiply(a.im, a.im, p_)) % p_;
    if (norm == 0) return std::nullopt;
    const U64 scale = inverse_mod(norm, p_);
    return Element{multiply(a.re, scale, p_), multiply((p_ - a.im) % p_, scale, p_)};
  }

  // The unit group of F_p[i] has order p^2 - 1, so exponents are reduced modulo p^2 - 1.
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

  // |base|^exponent in the group of squares, for a rational base whose prime factors are all
  // squares mod p.
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
    if (node.name == "factorial") return factorial(args[0], 1);
    if (node.name == "factorial2") return factorial(args[0], 2);
    if (node.name == "abs") return absolute(args[0]);
    if (node.name == "binom" && args.size() == 2) return binomial(args[0], args[1]);
    if (node.name == "floor") return floor(args[0]);
    if (node.name == "ceil") return difference({}, floor(difference({}, args[0])));
    return opaque(node.name, args);
  }

  // Flattens nested calls: max(a, max(b, c)) has three arguments.
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

  // ---- laws of functions; other function values are indeterminates ---------------------------

  // Neither order nor repetition of the arguments matters. Uses gcd(ka, kb) = k gcd(a, b), lcm(a,
  // b) gcd(a, b) = a b and 2 max(a, b) = a + b + |a - b|.
  std::optional<Element> symmetric_function(const std::string& name, std::vector<Element> args) {
    std::sort(args.begin(), args.end());
    args.erase(std::unique(args.begin(), args.end()), args.end());
    if (args.size() == 1) return args[0];
    const bool extreme = name == "max" || name == "min", pair = args.size() == 2;
    if (extreme && pair) {
      const Element distance = absolute(difference(args[0], args[1]));
      const Element twice = name == "max" ? sum(sum(args[0], args[1]), distance)
                                          : difference(sum(args[0], args[1]), distance);
      return product(twice, *rational(Rational(1, 2)));
    }
    if (name == "lcm" && pair) {
      const auto divisor = symmetric_function("gcd", args);
      const auto inverse = divisor ? invert(*divisor) : std::nullopt;
      return inverse ? std::optional(product(product(args[0], args[1]), *inverse)) : std::nullopt;
    }
    if (extreme) return opaque(name, args);
    Element scale;
    for (const Element& arg : args) scale = sum(scale, arg);
    const auto inverse = invert(scale);
    if (!inverse) return std::nullopt;
    for (Element& arg : args) arg = product(arg, *inverse);
    std::sort(args.begin(), args.end());
    return product(scale, opaque(name, args));
  }

  // |-x| = |x|
  Element absolute(const Element& x) const {
    return opaque("abs", {std::min(x, difference({}, x))});
  }

  // Finds an earlier argument of the function whose distance to x is at most `limit` and a multiple
  // of `step`, and returns it with the distance. If there is none, adds x and returns it with
  // distance 0.
  std::pair<Element, int64_t> split_shift(std::vector<Element>& earlier, const Element& x,
                                          U64 limit, U64 step) const {
    for (const Element& base : earlier) {
      const U64 up = difference(x, base).re, down = difference(base, x).re;
      if (x.im != base.im || std::min(up, down) > limit || std::min(up, down) % step != 0) continue;
      return {base, up < down ? static_cast<int64_t>(up) : -static_cast<int64_t>(down)};
    }
    earlier.push_back(x);
    return {x, 0};
  }

  // x! = x (x - 1)!, and x!! = x (x - 2)!! with a step of 2
  std::optional<Element> factorial(const Element& x, int64_t step) {
    auto& earlier = step == 1 ? factorials_ : double_factorials_;
    if (!budget_.spend(static_cast<long>(earlier.size() + kMaxShift))) return std::nullopt;
    Element base, value{1, 0};
    int64_t shift = static_cast<int64_t>(x.re);  // from 0! = 1
    if (x.im != 0 || x.re > kMaxShift || step != 1) {
      std::tie(base, shift) = split_shift(earlier, x, kMaxShift, static_cast<U64>(step));
      value = opaque(step == 1 ? "factorial" : "factorial2", {base});
    }
    Element factors{1, 0};
    for (int64_t k = step; k <= shift; k += step) factors = product(factors, add_integer(base, k));
    for (int64_t k = 0; k > shift; k -= step) factors = product(factors, add_integer(base, k));
    if (shift >= 0) return product(value, factors);
    const auto inverse = invert(factors);
    return inverse ? std::optional(product(value, *inverse)) : std::nullopt;
  }

  std::optional<Element> binomial(const Element& n, const Element& k) {
    const auto above = factorial(n, 1), chosen = factorial(k, 1),
               left = factorial(difference(n, k), 1);
    const auto inverse = above && chosen && left ? invert(product(*chosen, *left)) : std::nullopt;
    return inverse ? std::optional(product(*above, *inverse)) : std::nullopt;
  }

  // floor(x + 1) = floor(x) + 1
  Element floor(const Element& x) {
    budget_.spend(static_cast<long>(floors_.size()));
    const auto [base, shift] = split_shift(floors_, x, U64{1} << 32, 1);
    return add_integer(opaque("floor", {base}), shift);
  }

  Element add_integer(const Element& x, int64_t n) const {
    const U64 residue = n < 0 ? p_ - static_cast<U64>(-n) : static_cast<U64>(n);
    return {(x.re + residue) % p_, x.im};
  }

  Element sum(const Element& a, const Element& b) const {
    return {(a.re + b.re) % p_, (a.im + b.im) % p_};
  }

  Element difference(const Element& a, const Element& b) const {
    return {(a.re + p_ - b.re) % p_, (a.im + p_ - b.im) % p_};
  }

  U64 p_, constants_, variables_;
  Budget& budget_;
  std::vector<Element> factorials_, double_factorials_,
      floors_;  // no two of these arguments differ by a small integer
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
