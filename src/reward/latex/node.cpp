#include "reward/latex/node.h"

#include <algorithm>
#include <optional>

#include "reward/latex/exact.h"

namespace slimexx::reward::latex {

Ref make_number(Rational value) {
  auto node = std::make_shared<Node>();
  node->kind = Kind::kNumber;
  node->value = std::move(value);
  return node;
}

Ref make_node(Kind kind, std::string name, std::vector<Ref> args) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->name = std::move(name);
  node->args = std::move(args);
  return node;
}

Ref make_symbol(std::string name) { return make_node(Kind::kSymbol, std::move(name), {}); }
Ref make_call(std::string name, std::vector<Ref> args) {
  return make_node(Kind::kCall, std::move(name), std::move(args));
}

Ref make_relation(std::vector<Ref> args, std::vector<std::string> ops) {
  auto node = std::make_shared<Node>();
  node->kind = Kind::kRelation;
  node->args = std::move(args);
  node->ops = std::move(ops);
  return node;
}

namespace {

bool is_undefined(const Ref& node) { return is_call(node, "undefined"); }

Ref make_undefined() { return make_call("undefined", {}); }

// Collects the operands of a sum or product, and folds the numbers among them into one if the
// result stays small.
template <typename Fold>
Ref make_flat(Kind kind, std::vector<Ref> args, Rational number, Fold fold) {
  const Rational neutral = number;
  std::vector<Ref> rest;
  auto take = [&](const Ref& arg) {
    if (is_number(arg) && is_small(number) && is_small(arg->value)) {
      fold(number, arg->value);
    } else {
      rest.push_back(arg);
    }
  };
  for (const Ref& arg : args) {
    if (is_undefined(arg)) return arg;
    if (arg->kind == kind) {
      for (const Ref& inner : arg->args) take(inner);
    } else {
      take(arg);
    }
  }
  if (rest.empty()) return make_number(number);
  if (number != neutral) rest.insert(rest.begin(), make_number(number));
  if (rest.size() == 1) return rest[0];
  return make_node(kind, "", std::move(rest));
}

}  // namespace

Ref make_add(std::vector<Ref> args) {
  return make_flat(Kind::kAdd, std::move(args), 0, [](Rational& a, const Rational& b) { a += b; });
}

Ref make_mul(std::vector<Ref> args) {
  return make_flat(Kind::kMul, std::move(args), 1, [](Rational& a, const Rational& b) { a *= b; });
}

Ref make_pow(Ref base, Ref exponent) {
  if (is_undefined(base) || is_undefined(exponent)) return make_undefined();
  if (is_number(exponent) && exponent->value == 1) return base;
  if (is_number(base) && is_number(exponent)) {
    if (base->value == 0 && exponent->value <= 0) return make_undefined();
    if (auto folded = fold_power(base->value, exponent->value)) return make_number(*folded);
  }
  return make_node(Kind::kPow, "", {std::move(base), std::move(exponent)});
}

Ref make_function(std::string name, std::vector<Ref> args) {
  std::vector<Rational> values;
  std::vector<Ref> rest;
  for (const Ref& arg : args) {
    if (is_undefined(arg)) return arg;
    if (is_number(arg) && is_small(arg->value)) {
      values.push_back(arg->value);
    } else {
      rest.push_back(arg);
    }
  }
  const bool any_order = name == "max" || name == "min" || name == "gcd" || name == "lcm";
  if (rest.empty() || (any_order && values.size() > 1)) {
    if (auto folded = fold_function(name, values)) {
      if (rest.empty()) return make_number(*folded);
      rest.push_back(make_number(*folded));  // max(1, 2, x) = max(x, 2)
      return make_call(std::move(name), std::move(rest));
    }
  }
  return make_call(std::move(name), std::move(args));
}

Ref negate(const Ref& node) { return make_mul({make_number(-1), node}); }
Ref subtract(const Ref& left, const Ref& right) { return make_add({left, negate(right)}); }
Ref divide(const Ref& left, const Ref& right) {
  return make_mul({left, make_pow(right, make_number(-1))});
}

bool is_constant_name(const std::string& name) {
  return name == "pi" || name == "e" || name == "i" || name == "infty";
}

bool is_infinity(const Ref& node) {
  if (is_symbol(node, "infty")) return true;
  return node->kind == Kind::kMul && node->args.size() == 2 && is_number(node->args[0]) &&
         node->args[0]->value == -1 && is_symbol(node->args[1], "infty");
}

bool has_variable(const Ref& node) {
  if (node->kind == Kind::kSymbol) return !is_constant_name(node->name);
  if (node->kind == Kind::kCall && node->name.find(':') != std::string::npos) return true;
  return std::any_of(node->args.begin(), node->args.end(), has_variable);
}

bool contains_call(const Ref& node, const char* name) {
  if (is_call(node, name)) return true;
  return std::any_of(node->args.begin(), node->args.end(),
                     [&](const Ref& arg) { return contains_call(arg, name); });
}

bool is_scalar(const Ref& node) {
  switch (node->kind) {
    case Kind::kNumber:
    case Kind::kSymbol:
      return true;
    case Kind::kAdd:
    case Kind::kMul:
    case Kind::kPow:
      break;
    case Kind::kCall:
      if (node->name == "cup" || node->name == "cap" || node->name == "setminus" ||
          node->name == "ratio" || node->name == "such_that" || node->name == "undefined") {
        return false;
      }
      if (node->name.find(':') != std::string::npos) return true;
      break;
    default:
      return false;
  }
  return std::all_of(node->args.begin(), node->args.end(), is_scalar);
}

Ref rebuild(const Node& node, std::vector<Ref> args) {
  switch (node.kind) {
    case Kind::kAdd:
      return make_add(std::move(args));
    case Kind::kMul:
      return make_mul(std::move(args));
    case Kind::kPow:
      return make_pow(args[0], args[1]);
    case Kind::kCall:
      return make_function(node.name, std::move(args));
    default: {
      auto copy = std::make_shared<Node>(node);
      copy->args = std::move(args);
      return copy;
    }
  }
}

Ref substitute(const Ref& node, const std::string& symbol, const Ref& value) {
  if (node->kind == Kind::kSymbol) return node->name == symbol ? value : node;
  if (node->args.empty()) return node;
  std::vector<Ref> args;
  bool changed = false;
  for (const Ref& arg : node->args) {
    args.push_back(substitute(arg, symbol, value));
    changed |= args.back() != arg;
  }
  return changed ? rebuild(*node, std::move(args)) : node;
}

}  // namespace slimexx::reward::latex
