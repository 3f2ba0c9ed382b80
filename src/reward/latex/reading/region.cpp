#include "reward/latex/reading/region.h"

#include <algorithm>
#include <set>

#include "reward/latex/forms.h"

namespace slimexx::reward::latex {
namespace {

constexpr size_t kMaxBreaks = 64;

// Order of two real constants or infinities.
std::optional<int> compare_values(const Ref& a, const Ref& b, Budget& budget) {
  const bool infinite_a = is_infinity(a), infinite_b = is_infinity(b);
  if (infinite_a || infinite_b) {
    const int x = infinite_a ? *sign_of(a, budget) * 2 : 0;
    const int y = infinite_b ? *sign_of(b, budget) * 2 : 0;
    return x < y ? -1 : x > y;
  }
  if (is_number(a) && is_number(b)) return a->value < b->value ? -1 : a->value > b->value;
  if (!is_scalar(a) || !is_scalar(b) || has_variable(a) || has_variable(b)) return std::nullopt;
  if (prove_equal(a, b, budget) != Proof::kNone) return 0;
  const auto sign = sign_of(subtract(a, b), budget);
  if (!sign || *sign == 0) return std::nullopt;
  return sign;
}

Region whole_line() {
  Region region;
  region.in_gap = {true};
  return region;
}

std::optional<Region> interval(const Ref& low, const Ref& high, bool low_in, bool high_in,
                               Budget& budget) {
  const auto order = compare_values(low, high, budget);
  if (!order || *order > 0 || (*order == 0 && !(low_in && high_in))) return std::nullopt;
  Region region;
  if (*order == 0) {
    region.breaks = {low};
    region.in_break = {true};
    region.in_gap = {false, false};
    return region;
  }
  if (is_infinity(low)) {
    region.in_gap = {true};
  } else {
    if (!sign_of(low, budget)) return std::nullopt;
    region.breaks.push_back(low);
    region.in_break.push_back(low_in);
    region.in_gap = {false, true};
  }
  if (!is_infinity(high)) {
    if (!sign_of(high, budget)) return std::nullopt;
    region.breaks.push_back(high);
    region.in_break.push_back(high_in);
    region.in_gap.push_back(false);
  }
  return region;
}

// Combines the membership of every piece; drops breaks that separate nothing.
template <typename Combine>
std::optional<Region> combine(const Region& a, const Region& b, Budget& budget, Combine keep) {
  if (!a.variable.empty() && !b.variable.empty() && a.variable != b.variable) return std::nullopt;
  if (a.breaks.size() + b.breaks.size() > kMaxBreaks) return std::nullopt;
  Region out;
  out.variable = a.variable.empty() ? b.variable : a.variable;
  out.in_gap = {keep(a.in_gap[0], b.in_gap[0])};
  size_t i = 0, j = 0;
  while (i < a.breaks.size() || j < b.breaks.size()) {
    int order = i == a.breaks.size() ? 1 : -1;
    if (i < a.breaks.size() && j < b.breaks.size()) {
      const auto compared = compare_values(a.breaks[i], b.breaks[j], budget);
      if (!compared) return std::nullopt;
      order = *compared;
    }
    const bool in_a = order <= 0 ? a.in_break[i] : a.in_gap[i];
    const bool in_b = order >= 0 ? b.in_break[j] : b.in_gap[j];
    const Ref at = order <= 0 ? a.breaks[i] : b.breaks[j];
    if (order <= 0) ++i;
    if (order >= 0) ++j;
    const bool here = keep(in_a, in_b), after = keep(a.in_gap[i], b.in_gap[j]);
    if (here == after && here == out.in_gap.back()) continue;
    out.breaks.push_back(at);
    out.in_break.push_back(here);
    out.in_gap.push_back(after);
  }
  return out;
}

void find_variables(const Ref& node, std::set<std::string>& names) {
  if (node->kind == Kind::kSymbol && !is_constant_name(node->name)) names.insert(node->name);
  for (const Ref& arg : node->args) find_variables(arg, names);
}

// The half-line where `left op right` holds; nullopt unless that is linear in its only variable.
std::optional<Region> half_line(const Ref& left, const std::string& op, const Ref& right,
                                Budget& budget) {
  Ref bound;
  std::string variable;
  bool less = op[0] == '<';  // variable below bound
  if (is_label(left) && is_scalar(right) && !has_variable(right)) {
    bound = right;
    variable = print_tree(left);
  } else if (is_label(right) && is_scalar(left) && !has_variable(left)) {
    bound = left;
    variable = print_tree(right);
    less = !less;
  } else {
    std::set<std::string> names;
    find_variables(left, names);
    find_variables(right, names);
    if (names.size() != 1 || !is_scalar(left) || !is_scalar(right)) return std::nullopt;
    const Ref difference = subtract(left, right);
    auto at = [&](int x) { return substitute(difference, *names.begin(), make_number(x)); };
    const Ref start = at(0), slope = subtract(at(1), start);
    if (has_variable(start)) return std::nullopt;
    for (int x : {2, 7, -5}) {
      const Ref line = make_add({start, make_mul({make_number(x), slope})});
      if (prove_equal(at(x), line, budget) == Proof::kNone) return std::nullopt;
    }
    // Being linear at five points does not prove linearity (|x - 100|), so admit only sums and
    // products of x.
    if (contains_call(difference, "abs") || contains_call(difference, "floor") ||
        contains_call(difference, "ceil") || contains_call(difference, "max") ||
        contains_call(difference, "min")) {
      return std::nullopt;
    }
    const Ref linear = make_add({start, make_mul({make_symbol(*names.begin()), slope})});
    if (prove_equal(difference, linear, budget) == Proof::kNone) return std::nullopt;
    const auto sign = sign_of(slope, budget);
    if (!sign || *sign == 0) return std::nullopt;
    bound = divide(negate(start), slope);
    variable = print_tree(make_symbol(*names.begin()));
    if (*sign < 0) less = !less;
  }
  const bool closed = op.size() == 2;
  const Ref infinity = make_symbol("infty");
  auto region = less ? interval(negate(infinity), bound, false, closed, budget)
                     : interval(bound, infinity, closed, false, budget);
  if (region) region->variable = variable;
  return region;
}

std::optional<Region> from_relation(const Node& node, Budget& budget) {
  if (node.ops.size() == 1 && node.ops[0] == "in" && is_label(node.args[0])) {
    auto region = to_region(node.args[1], budget);
    if (region) region->variable = print_tree(node.args[0]);
    return region;
  }
  if (node.ops.size() == 1 && node.ops[0] == "!=" && is_label(node.args[0]) &&
      sign_of(node.args[1], budget)) {
    Region region;
    region.breaks = {node.args[1]};
    region.in_break = {false};
    region.in_gap = {true, true};
    region.variable = print_tree(node.args[0]);
    return region;
  }
  std::optional<Region> result;
  for (size_t k = 0; k < node.ops.size(); ++k) {
    const std::string& op = node.ops[k];
    if (op[0] != '<' && op[0] != '>') return std::nullopt;
    if (op[0] != node.ops[0][0]) return std::nullopt;
    const auto half = half_line(node.args[k], op, node.args[k + 1], budget);
    if (!half) return std::nullopt;
    result = result ? combine(*result, *half, budget, [](bool a, bool b) { return a && b; }) : half;
    if (!result) return std::nullopt;
  }
  return result;
}

std::optional<Region> from_points(const std::vector<Ref>& points, Budget& budget) {
  Region region;
  for (const Ref& point : points) {
    auto single = is_infinity(point) ? std::nullopt : interval(point, point, true, true, budget);
    if (!single) return std::nullopt;
    auto both = combine(region, *single, budget, [](bool a, bool b) { return a || b; });
    if (!both) return std::nullopt;
    region = *both;
  }
  return region;
}

std::optional<Region> from_tuple(const Node& node, Budget& budget) {
  if (node.args.size() != 2 || node.name[0] == '<') return std::nullopt;
  const bool low_in = node.name[0] == '[', high_in = node.name[1] == ']';
  if (is_infinity(node.args[0]) && low_in) return std::nullopt;
  if (is_infinity(node.args[1]) && high_in) return std::nullopt;
  return interval(node.args[0], node.args[1], low_in, high_in, budget);
}

std::optional<Region> from_list(const Node& node, Budget& budget) {
  if (node.name != "or" && node.name != "and") return std::nullopt;
  std::optional<Region> result;
  for (const Ref& arg : node.args) {
    if (arg->kind != Kind::kRelation) return std::nullopt;
    const auto part = to_region(arg, budget);
    if (!part) return std::nullopt;
    if (!result) {
      result = part;
    } else if (node.name == "or") {
      result = combine(*result, *part, budget, [](bool a, bool b) { return a || b; });
    } else {
      result = combine(*result, *part, budget, [](bool a, bool b) { return a && b; });
    }
    if (!result) return std::nullopt;
  }
  return result;
}

}  // namespace

std::optional<Region> to_region(const Ref& node, Budget& budget) {
  if (is_call(node, "set:R")) return whole_line();
  if (is_call(node, "such_that")) {
    auto region = to_region(node->args[1], budget);
    const Ref& what = node->args[0];
    const Ref name = what->kind == Kind::kRelation && what->ops[0] == "in" ? what->args[0] : what;
    if (!region || region->variable != print_tree(name)) return std::nullopt;
    region->variable.clear();
    return region;
  }
  if (node->kind == Kind::kRelation) return from_relation(*node, budget);
  if (node->kind == Kind::kTuple) return from_tuple(*node, budget);
  if (node->kind == Kind::kSet) return from_points(node->args, budget);
  if (node->kind == Kind::kList) return from_list(*node, budget);
  const bool join = is_call(node, "cup"), meet = is_call(node, "cap");
  if (!join && !meet && !is_call(node, "setminus")) return std::nullopt;
  const auto left = to_region(node->args[0], budget), right = to_region(node->args[1], budget);
  if (!left || !right) return std::nullopt;
  return combine(*left, *right, budget, [&](bool a, bool b) {
    return join ? a || b : meet ? a && b : a && !b;
  });
}

bool equal_regions(const Region& a, const Region& b, Budget& budget) {
  if (!a.variable.empty() && !b.variable.empty() && a.variable != b.variable) return false;
  if (a.in_break != b.in_break || a.in_gap != b.in_gap) return false;
  for (size_t k = 0; k < a.breaks.size(); ++k) {
    if (prove_equal(a.breaks[k], b.breaks[k], budget) == Proof::kNone) return false;
  }
  return true;
}

}  // namespace slimexx::reward::latex
