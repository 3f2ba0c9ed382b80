// Values in a chain: "2\sqrt{3} \approx 3.46", "m + n = 256 + 37 = 293".
#include <algorithm>
#include <set>

#include "reward/latex/forms.h"

namespace slimexx::reward::latex {
namespace {

const Ref& without_unit(const Ref& node) {
  return node->kind == Kind::kQuantity ? node->args[0] : node;
}

bool is_constant(const Ref& node) { return is_scalar(node) && !has_variable(node); }

// Whether |a - b| <= limit; nullopt if that is not certain.
std::optional<bool> is_near(const Ref& a, const Ref& b, const Ref& limit, Budget& budget) {
  const Ref distance = make_function("abs", {subtract(a, b)});
  const auto sign = sign_of(subtract(limit, distance), budget);
  if (!sign) return std::nullopt;
  return *sign >= 0;
}

// One unit in the last place of a decimal: 0.01 for 3.46. Null for 1/3.
Ref last_place(const Ref& number) {
  constexpr int kMaxPlaces = 40;
  Rational place = 1;
  Rational scaled = number->value;
  for (int k = 0; k <= kMaxPlaces; ++k, place /= 10, scaled *= 10) {
    if (denominator(scaled) == 1) return make_number(place);
  }
  return nullptr;
}

// The decimal as a plain number (33.3\% as 0.333, 63.4^\circ in radians) if the exact value next to
// it has no unit.
Ref in_unit_of(const Ref& decimal, const Ref& exact) {
  const Ref& number = without_unit(decimal);
  if (decimal->kind != Kind::kQuantity || exact->kind == Kind::kQuantity) return number;
  if (decimal->name == "%") return divide(number, make_number(100));
  if (decimal->name == "degree") {
    return make_mul({number, make_symbol("pi"), make_number(Rational(1, 180))});
  }
  return number;
}

bool adds_a_number(const Ref& node) {
  return node->kind == Kind::kAdd && std::any_of(node->args.begin(), node->args.end(), is_number);
}

void find_symbols(const Ref& node, std::set<std::string>& names) {
  if (node->kind == Kind::kSymbol && !is_constant_name(node->name)) names.insert(node->name);
  for (const Ref& arg : node->args) find_symbols(arg, names);
}

bool names_coordinates(const Node& equation) {
  std::set<std::string> names;
  for (const Ref& arg : equation.args) find_symbols(arg, names);
  return names.count("x") || names.count("y") || names.count("z");
}

}  // namespace

Approximated split_approximation(const Ref& value) {
  if (value->kind != Kind::kRelation) return {value, nullptr};
  const auto& ops = value->ops;
  const auto first = std::find(ops.begin(), ops.end(), "~");
  const bool chain = std::all_of(ops.begin(), ops.end(),
                                 [](const std::string& op) { return op == "=" || op == "~"; });
  if (first == ops.end() || !chain) return {value, nullptr};
  const auto parts = first - ops.begin() + 1;
  const Ref& decimal = value->args[static_cast<size_t>(parts)];
  Ref exact = parts == 1 ? value->args[0]
                         : make_relation({value->args.begin(), value->args.begin() + parts},
                                         {ops.begin(), first});
  const bool lends_unit = decimal->kind == Kind::kQuantity && exact->kind != Kind::kQuantity &&
                          is_scalar(exact) && decimal->name != "%" && decimal->name != "degree";
  if (lends_unit) exact = make_node(Kind::kQuantity, decimal->name, {exact});
  return {exact, decimal};
}

bool contradicts(const Approximated& both, Budget& budget) {
  if (!both.decimal) return false;
  const Ref exact = is_equation(both.exact) ? both.exact->args.back() : both.exact;
  const Ref& bare = without_unit(exact);
  const Ref decimal = in_unit_of(both.decimal, exact);
  if (!is_constant(bare) || !is_constant(decimal)) return false;
  const Ref share = make_function("abs", {make_mul({bare, make_number(Rational(1, 20))})});
  if (is_near(bare, decimal, share, budget) != false) return false;
  const Ref place = is_number(decimal) ? last_place(decimal) : nullptr;
  return !place || is_near(bare, decimal, place, budget) == false;
}

bool is_rounded(const Approximated& both, const Ref& value, Budget& budget) {
  const Ref& number = without_unit(value);
  const Ref& decimal = without_unit(both.decimal);
  const Ref last = is_equation(both.exact) ? both.exact->args.back() : both.exact;
  const Ref& exact = without_unit(last);
  if (!is_number(number) || !is_number(decimal) || number->value != decimal->value) return false;
  if (both.decimal->name != value->name && both.decimal->kind == value->kind) return false;
  if (is_scalar(exact) && has_variable(exact)) return true;  // m + n \approx 12
  const Ref place = last_place(decimal);
  if (!place || !is_constant(exact)) return false;
  return is_near(in_unit_of(both.decimal, both.exact), exact, place, budget) == true;
}

bool is_equation(const Ref& node) {
  return node->kind == Kind::kRelation &&
         std::all_of(node->ops.begin(), node->ops.end(),
                     [](const std::string& op) { return op == "="; });
}

Ref named_value(const Node& equation, bool reference, Budget& budget) {
  std::vector<Ref> sides = equation.args;
  // "293 = m + n"
  if (sides.size() == 2 && is_constant(without_unit(sides[0])) && !is_constant(sides[1])) {
    std::swap(sides[0], sides[1]);
  }
  const Ref value = sides.back();
  sides.pop_back();
  if (is_constant(sides[0])) return nullptr;
  std::set<std::string> names, left;
  find_symbols(value, names);
  for (const Ref& side : sides) {
    if (!is_label(side)) find_symbols(side, left);
    const bool both = is_constant(side) && is_constant(without_unit(value));
    if (both && prove_equal(side, without_unit(value), budget) == Proof::kNone) return nullptr;
  }
  const bool solved = std::none_of(names.begin(), names.end(),
                                   [&](const std::string& name) { return left.count(name) > 0; });
  if (!solved || value->kind == Kind::kText) return nullptr;
  const bool zero = is_number(value) && value->value == 0;
  if (zero && (reference || std::any_of(sides.begin(), sides.end(), adds_a_number))) return nullptr;
  if (reference && (!names.empty() || names_coordinates(equation))) return nullptr;
  return value;
}

}  // namespace slimexx::reward::latex
