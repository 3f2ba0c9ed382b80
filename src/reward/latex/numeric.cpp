// The identity test with 100 digits; identity.h explains when it is refused.
#include <algorithm>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cstdint>
#include <exception>
#include <set>

#include "reward/latex/exact.h"
#include "reward/latex/identity.h"

namespace slimexx::reward::latex {
namespace {

namespace mp = boost::multiprecision;
using Float = mp::number<mp::cpp_bin_float_100::backend_type, mp::et_off>;

struct Complex {
  Float re = 0, im = 0;
};

enum class Fault { kNone, kUnreliable, kOutsideDomain, kUnknown };

constexpr unsigned kMaxLiteralBits = 160;
const Float& absorbed() {
  static const Float value("1e-30");
  return value;
}
const Float& noise() {
  static const Float value("1e-80");
  return value;
}
const Float& agreement() {
  static const Float value("1e-70");
  return value;
}

Float pi_value() {
  static const Float value = acos(Float(-1));
  return value;
}

bool is_finite(const Complex& z) { return mp::isfinite(z.re) && mp::isfinite(z.im); }
Float magnitude(const Complex& z) {
  if (z.im == 0) return abs(z.re);
  return sqrt(z.re * z.re + z.im * z.im);
}

bool is_extreme(const Node& node) {
  return node.kind == Kind::kCall && (node.name == "max" || node.name == "min");
}

class Evaluator {
 public:
  // `point` selects the values of the variables; `scales` are the magnitudes they are drawn around.
  Evaluator(int point, const std::vector<Float>& scales, bool imaginary, Budget& budget)
      : point_(point), scales_(scales), imaginary_(imaginary), budget_(budget) {}

  std::optional<Complex> evaluate(const Ref& node) {
    Complex value = visit(node);
    if (fault_ != Fault::kNone || !is_finite(value)) return std::nullopt;
    return value;
  }
  Fault fault() const { return fault_; }

 private:
  Complex fail(Fault fault) {
    if (fault_ == Fault::kNone) fault_ = fault;
    return {};
  }

  // cos x - 1 and sin x - tan x vanish with a power of x, so for a tiny x the digits that must
  // agree hide the difference.
  static bool is_tiny(const Float& x) {
    static const Float limit("1e-12");
    return x != 0 && abs(x) < limit;
  }

  // Sets parts that are only rounding errors to 0.
  Complex settle(Complex z) const {
    const Float limit = (abs(z.re) + abs(z.im)) * noise();
    if (abs(z.re) < limit) z.re = 0;
    if (abs(z.im) < limit) z.im = 0;
    return z;
  }

  Complex visit(const Ref& node) {
    if (fault_ != Fault::kNone) return {};
    if (!budget_.spend(2)) return fail(Fault::kUnknown);
    switch (node->kind) {
      case Kind::kNumber:
        return literal(node->value);
      case Kind::kSymbol:
        return symbol(node->name);
      case Kind::kAdd: {
        Complex sum = visit(node->args[0]);
        for (size_t k = 1; k < node->args.size(); ++k) sum = add(sum, visit(node->args[k]));
        return sum;
      }
      case Kind::kMul: {
        Complex result = visit(node->args[0]);
        for (size_t k = 1; k < node->args.size(); ++k)
          result = multiply(result, visit(node->args[k]));
        return result;
      }
      case Kind::kPow:
        return raise(node->args[0], node->args[1]);
      case Kind::kCall:
        return call(*node);
      default:
        return fail(Fault::kUnknown);
    }
  }

  Complex literal(const Rational& value) {
    const Integer top = abs(numerator(value)), bottom = denominator(value);
    if ((top != 0 && msb(top) > kMaxLiteralBits) || msb(bottom) > kMaxLiteralBits) {
      return fail(Fault::kUnreliable);
    }
    return {Float(numerator(value)) / Float(bottom), 0};
  }

  Complex symbol(const std::string& name) {
    if (name == "i") return {0, 1};
    if (name == "pi") return {pi_value(), 0};
    if (name == "e") return {exp(Float(1)), 0};
    if (name == "infty") return fail(Fault::kUnknown);
    const uint64_t bits = mix_bits(mix_bits(29, point_), hash_text(name));
    const Float unit = Float(bits >> 11) / Float(uint64_t{1} << 53);
    const Float& scale = scales_[point_ % scales_.size()];
    const bool negative = point_ >= static_cast<int>(scales_.size()) && (bits & 1);
    const Float value = scale * (Float(0.5) + unit);
    return {negative ? Float(-value) : value, 0};
  }

  Complex add(const Complex& a, const Complex& b) {
    if (fault_ != Fault::kNone) return {};
    return {add_reals(a.re, b.re), add_reals(a.im, b.im)};
  }

  Float add_reals(const Float& a, const Float& b) {
    if (a == 0) return b;
    if (b == 0) return a;
    const Float large = std::max<Float>(abs(a), abs(b)), small = std::min<Float>(abs(a), abs(b));
    if (small < large * absorbed()) fail(Fault::kUnreliable);
    const Float sum = a + b;
    return abs(sum) < large * noise() ? Float(0) : sum;
  }

  Complex multiply(const Complex& a, const Complex& b) {
    if (fault_ != Fault::kNone) return {};
    if (a.im == 0 && b.im == 0) {
      const Float product = a.re * b.re;
      // Refuse underflow: it would make different numbers equal.
      if (product == 0 && a.re != 0 && b.re != 0) return fail(Fault::kUnreliable);
      return mp::isfinite(product) ? Complex{product, 0} : fail(Fault::kUnreliable);
    }
    return {add_reals(a.re * b.re, Float(-(a.im * b.im))), add_reals(a.re * b.im, a.im * b.re)};
  }

  Complex invert(const Complex& a) {
    const Float norm = a.re * a.re + a.im * a.im;
    if (norm == 0) return fail(Fault::kOutsideDomain);
    if (!mp::isfinite(norm)) return fail(Fault::kUnreliable);
    if (a.im == 0) return {1 / a.re, 0};
    return {a.re / norm, -a.im / norm};
  }

  Complex exponential(const Complex& z) {
    if (!budget_.spend(60) || abs(z.re) > 1e6 || abs(z.im) > 1e6) return fail(Fault::kUnreliable);
    if (is_tiny(z.re) || is_tiny(z.im)) return fail(Fault::kUnreliable);
    const Float size = exp(z.re);
    if (z.im == 0) return {size, 0};
    return settle({size * cos(z.im), size * sin(z.im)});
  }

  Complex logarithm(const Complex& z, bool variable) {
    if (z.re == 0 && z.im == 0) return fail(Fault::kOutsideDomain);
    if (!budget_.spend(60)) return fail(Fault::kUnknown);
    if (z.im == 0 && z.re > 0) return {log(z.re), 0};
    if (variable && !imaginary_) return fail(Fault::kOutsideDomain);
    return {log(magnitude(z)), atan2(z.im, z.re)};
  }

  Complex integer_power(Complex base, long exponent) {
    if (exponent < 0) return integer_power(invert(base), -exponent);
    Complex result{1, 0};
    for (; exponent && fault_ == Fault::kNone; exponent >>= 1) {
      if (!budget_.spend(4)) return fail(Fault::kUnknown);
      if (exponent & 1) result = multiply(result, base);
      if (exponent > 1) base = multiply(base, base);
    }
    return result;
  }

  Complex raise(const Ref& base_node, const Ref& exponent_node) {
    const Complex base = visit(base_node);
    if (is_number(exponent_node)) {
      const Rational& exponent = exponent_node->value;
      if (const auto n = to_long(exponent)) return integer_power(base, *n);
      // An odd root of a negative number is the real root.
      if (base.im == 0 && base.re < 0 && denominator(exponent) % 2 == 1) {
        const Complex positive = raise_general({-base.re, 0}, literal(exponent), false);
        const bool odd = numerator(exponent) % 2 != 0;
        return {odd ? Float(-positive.re) : positive.re, 0};
      }
    }
    const bool square_root = is_number(exponent_node) && denominator(exponent_node->value) == 2;
    const auto halves = square_root ? to_long(exponent_node->value * 2) : std::nullopt;
    if (halves && base.im == 0 && base.re > 0) return integer_power({sqrt(base.re), 0}, *halves);
    const Complex exponent = visit(exponent_node);
    return raise_general(base, exponent, has_variable(base_node) || has_variable(exponent_node));
  }

  Complex raise_general(const Complex& base, const Complex& exponent, bool variable) {
    if (fault_ != Fault::kNone) return {};
    if (base.re == 0 && base.im == 0) {
      if (exponent.re > 0 && exponent.im == 0) return {};
      return fail(Fault::kOutsideDomain);
    }
    return exponential(multiply(exponent, logarithm(base, variable)));
  }

  Complex call(const Node& node) {
    const std::string& name = node.name;
    if (is_extreme(node)) return extreme(node);
    if (node.args.size() != 1) return fail(Fault::kUnknown);
    const Complex x = visit(node.args[0]);
    if (fault_ != Fault::kNone) return {};
    if (name == "percent") return {x.re / 100, x.im / 100};
    if (name == "degree") return {x.re * pi_value() / 180, 0};
    if (name == "ln") return logarithm(x, has_variable(node.args[0]));
    if (name == "abs") return {magnitude(x), 0};
    if (x.im != 0) return fail(Fault::kUnknown);
    if (!budget_.spend(80)) return fail(Fault::kUnknown);
    if (name == "floor" || name == "ceil") return round(name, x.re, has_variable(node.args[0]));
    return real_function(name, x.re);
  }

  Complex extreme(const Node& node) {
    Float best;
    for (size_t k = 0; k < node.args.size(); ++k) {
      const Complex value = visit(node.args[k]);
      if (fault_ != Fault::kNone) return {};
      if (value.im != 0) return fail(Fault::kOutsideDomain);
      const bool better = node.name == "max" ? value.re > best : value.re < best;
      if (k == 0 || better) best = value.re;
    }
    return {best, 0};
  }

  Complex round(const std::string& name, const Float& x, bool variable) {
    const Float nearest = mp::round(x);
    if (variable || abs(x - nearest) < Float("1e-40")) return fail(Fault::kUnknown);
    return {name == "floor" ? Float(mp::floor(x)) : Float(mp::ceil(x)), 0};
  }

  Complex real_function(const std::string& name, const Float& x) {
    if (abs(x) > 1e9 || is_tiny(x)) return fail(Fault::kUnreliable);
    auto snapped = [](const Float& y) { return Complex{abs(y) < noise() ? Float(0) : y, 0}; };
    if (name == "sin") return snapped(sin(x));
    if (name == "cos") return snapped(cos(x));
    if (name == "arctan") return {atan(x), 0};
    if (name == "arcsin" || name == "arccos") {
      if (abs(x) > 1) return fail(Fault::kOutsideDomain);
      return snapped(name == "arcsin" ? asin(x) : acos(x));
    }
    return fail(Fault::kUnknown);
  }

  int point_;
  const std::vector<Float>& scales_;
  bool imaginary_;
  Budget& budget_;
  Fault fault_ = Fault::kNone;
};

void collect(const Ref& node, std::vector<Float>& scales, bool& imaginary) {
  if (is_number(node) && node->value != 0 && scales.size() < 12) {
    const Integer top = abs(numerator(node->value));
    if (msb(top) <= kMaxLiteralBits && msb(denominator(node->value)) <= kMaxLiteralBits) {
      const Float scale = Float(top) / Float(denominator(node->value));
      if (std::find(scales.begin(), scales.end(), scale) == scales.end()) scales.push_back(scale);
    }
  }
  if (is_symbol(node, "i")) imaginary = true;
  for (const Ref& arg : node->args) collect(arg, scales, imaginary);
}

// Whether the formula may differ between regions of the variables, as for |x| and sqrt(x^2).
bool has_branches(const Ref& node) {
  if (is_call(node, "abs") || is_extreme(*node)) return true;
  if (node->kind == Kind::kPow && is_number(node->args[1]) && !is_integer(node->args[1]->value) &&
      has_variable(node->args[0])) {
    return true;
  }
  return std::any_of(node->args.begin(), node->args.end(), has_branches);
}

bool is_even_root(const Ref& node) {
  return node->kind == Kind::kPow && is_number(node->args[1]) &&
         denominator(node->args[1]->value) % 2 == 0 && has_variable(node->args[0]);
}

// Whether the radicand may be a square, so that its root is an absolute value.
bool may_be_square(const Ref& node) {
  if (node->kind == Kind::kPow && has_variable(node->args[0])) return true;
  if (node->kind == Kind::kMul) {
    std::set<std::string> names;
    for (const Ref& arg : node->args) {
      if (!has_variable(arg)) continue;
      if (arg->kind != Kind::kSymbol || !names.insert(arg->name).second) return true;
    }
    return false;
  }
  return std::any_of(node->args.begin(), node->args.end(), may_be_square);
}

// Counts absolute values, roots that may be absolute values, maxima and minima. A single one has
// two branches, and points far out on both sides test both. Two of them may differ from another
// formula only in a window that no point hits.
int count_folds(const Ref& node) {
  const bool root = is_even_root(node);
  int inside = 0;
  for (const Ref& arg : node->args) inside += count_folds(arg);
  if (root && inside > 0) return 2;
  if (is_extreme(*node) && has_variable(node)) inside += static_cast<int>(node->args.size()) - 1;
  return inside + (is_call(node, "abs") && has_variable(node) ? 1 : 0) +
         (root && may_be_square(node->args[0]) ? 1 : 0);
}

// Draws points around 1 and around every number in the expressions, where absolute values and
// similar functions may switch branches; first positive points, then of either sign.
struct Sampler {
  std::vector<Float> scales{Float(1), Float(8), Float(0.125), Float(100)};
  bool imaginary = false;
  int points = 1;
  int needed = 1;

  Sampler(const Ref& a, const Ref& b) {
    collect(a, scales, imaginary);
    collect(b, scales, imaginary);
    if (!has_variable(a) && !has_variable(b)) return;
    const bool branches = has_branches(a) || has_branches(b);
    if (branches) scales.insert(scales.end(), {Float(1e6), Float(1e12)});
    points = static_cast<int>(scales.size()) * (branches ? 12 : 6);
    needed = 8;
  }
};

// Visits the points where both expressions have a value; stops with false if `accept` returns
// false.
template <typename Accept>
std::optional<bool> at_all_points(const Ref& a, const Ref& b, Budget& budget, Accept accept) {
  if (count_folds(a) > 1 || count_folds(b) > 1) return std::nullopt;
  const Sampler sampler(a, b);
  int valid = 0;
  for (int point = 0; point < sampler.points; ++point) {
    Evaluator first(point, sampler.scales, sampler.imaginary, budget);
    const auto x = first.evaluate(a);
    if (first.fault() == Fault::kUnknown) return std::nullopt;
    Evaluator second(point, sampler.scales, sampler.imaginary, budget);
    const auto y = second.evaluate(b);
    if (second.fault() == Fault::kUnknown) return std::nullopt;
    if (!x || !y) continue;
    if (!accept(*x, *y)) return false;
    ++valid;
  }
  if (valid < sampler.needed) return std::nullopt;
  return true;
}

bool agree(const Complex& x, const Complex& y) {
  const Float size = std::max<Float>(magnitude(x), magnitude(y));
  return magnitude({x.re - y.re, x.im - y.im}) <= size * agreement();
}

template <typename Body>
auto guarded(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception&) {  // Boost throws on overflow and domain errors
    return std::nullopt;
  }
}

}  // namespace

std::optional<bool> equal_numeric(const Ref& a, const Ref& b, Budget& budget) {
  return guarded([&] { return at_all_points(a, b, budget, agree); });
}

std::optional<bool> proportional_numeric(const Ref& f, const Ref& g, Budget& budget) {
  return guarded([&]() -> std::optional<bool> {
    std::optional<Float> ratio;
    return at_all_points(f, g, budget, [&](const Complex& x, const Complex& y) {
      if (x.im != 0 || y.im != 0 || x.re == 0 || y.re == 0) return false;
      const Float here = x.re / y.re;
      if (!ratio) ratio = here;
      return abs(here - *ratio) <= abs(here) * agreement();
    });
  });
}

std::optional<int> sign_of_product(const Ref& f, const Ref& g, Budget& budget) {
  return guarded([&]() -> std::optional<int> {
    int sign = 0;
    const auto constant = at_all_points(f, g, budget, [&](const Complex& x, const Complex& y) {
      const Float product = x.re * y.re;
      if (x.im != 0 || y.im != 0 || product == 0) return false;
      const int here = product > 0 ? 1 : -1;
      if (sign == 0) sign = here;
      return here == sign;
    });
    if (!constant || !*constant || sign == 0) return std::nullopt;
    return sign;
  });
}

std::optional<int> numeric_sign(const Ref& node, Budget& budget) {
  return guarded([&]() -> std::optional<int> {
    const std::vector<Float> scales{Float(1)};
    Evaluator evaluator(0, scales, false, budget);
    const auto value = evaluator.evaluate(node);
    if (!value || value->im != 0) return std::nullopt;
    return value->re > 0 ? 1 : value->re < 0 ? -1 : 0;
  });
}

}  // namespace slimexx::reward::latex
