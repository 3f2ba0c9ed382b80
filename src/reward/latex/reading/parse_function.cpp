// Commands: functions, roots, fractions, sums, matrices.
#include <map>

#include "reward/latex/reading/parser.h"
#include "reward/latex/reading/words.h"

namespace slimexx::reward::latex {
namespace {

const std::map<std::string, std::string> kSynonyms = {
    {"asin", "arcsin"}, {"acos", "arccos"}, {"atan", "arctan"}, {"hcf", "gcd"}, {"gcf", "gcd"}};

// Rewrites tan, sec ... with sin and cos, so that the identity test needs four functions fewer.
Ref elementary(const std::string& name, const Ref& x) {
  const Ref minus_one = make_number(-1);
  auto call = [&](const char* function) { return make_function(function, {x}); };
  auto inverse = [&](const char* function) { return make_pow(call(function), minus_one); };
  if (name == "tan") return make_mul({call("sin"), inverse("cos")});
  if (name == "cot") return make_mul({call("cos"), inverse("sin")});
  if (name == "sec") return inverse("cos");
  if (name == "csc") return inverse("sin");
  auto hyperbolic = [&](bool sine) {
    const Ref up = make_pow(make_symbol("e"), x), down = make_pow(make_symbol("e"), negate(x));
    return divide(sine ? subtract(up, down) : make_add({up, down}), make_number(2));
  };
  if (name == "sinh") return hyperbolic(true);
  if (name == "cosh") return hyperbolic(false);
  if (name == "tanh") return divide(hyperbolic(true), hyperbolic(false));
  if (name == "coth") return divide(hyperbolic(false), hyperbolic(true));
  if (name == "exp") return make_pow(make_symbol("e"), x);
  if (name == "lg")
    return make_mul({call("ln"), make_pow(make_function("ln", {make_number(10)}), minus_one)});
  return make_function(name, {x});
}

bool takes_many(const std::string& name) {
  return name == "max" || name == "min" || name == "gcd" || name == "lcm" || name == "binom";
}

}  // namespace

Ref Parser::parse_command() {
  const std::string name = peek().text;
  ++at_;
  if (name == "frac") {
    const Ref top = parse_argument();
    return divide(top, parse_argument());
  }
  if (name == "binom" && !is("(")) {
    const Ref top = parse_argument();
    return make_function("binom", {top, parse_argument()});
  }
  if (name == "sqrt") return parse_root();
  if (name == "sum" || name == "prod") return parse_big_operator(name);
  if (name == "mathbb") return parse_mathbb();
  if (name == "overline" || name == "hat" || name == "tilde") {
    return make_call("mark:" + name, {parse_argument()});
  }
  if (name.compare(0, 6, "begin:") == 0) return parse_environment(name.substr(6));
  if (is_function(name)) return parse_function(name);
  fail("\\" + name + " is not supported");
}

Ref Parser::parse_mathbb() {
  const Ref name = parse_argument();
  if (name->kind != Kind::kSymbol) fail("\\mathbb without a letter");
  return make_call("set:" + name->name, {});
}

Ref Parser::parse_root() {
  Ref index = make_number(2);
  if (is("[")) {
    ++at_;
    index = parse_sum();
    expect("]");
  }
  const Ref radicand = parse_argument();
  return make_pow(radicand, make_pow(index, make_number(-1)));
}

std::vector<Ref> Parser::parse_function_arguments() {
  const std::string open = peek().text;
  if (open == "(" || open == "[" || open == "{" || open == "\\{") {
    ++at_;
    const int bars = bars_;
    bars_ = 0;
    Items items = parse_items();
    bars_ = bars;
    expect(open == "(" ? ")" : open == "[" ? "]" : open == "{" ? "}" : "\\}");
    if (items.items.empty()) fail("a function without an argument");
    return std::move(items.items);
  }
  std::vector<Ref> factors{parse_factor()};
  bool pi = is_symbol(factors[0], "pi");
  while (starts_factor() && peek().kind != Token::kCommand && !is("(") && !is("[")) {
    factors.push_back(parse_factor());
    pi = is_symbol(factors.back(), "pi");
  }
  if (pi && is("/") && peek(1).kind == Token::kNumber) {  // sin pi/6
    ++at_;
    factors.push_back(make_pow(parse_primary(), make_number(-1)));
  }
  return {make_mul(std::move(factors))};
}

Ref Parser::parse_function(const std::string& spelled) {
  const auto synonym = kSynonyms.find(spelled);
  std::string name = synonym == kSynonyms.end() ? spelled : synonym->second;
  Ref base, exponent;
  for (int k = 0; k < 2; ++k) {
    if (take("_")) base = parse_argument();
    if (take("^")) exponent = parse_exponent();
  }
  if (exponent && is_number(exponent) && exponent->value == -1 &&
      (name == "sin" || name == "cos" || name == "tan")) {
    name = "arc" + name;
    exponent = nullptr;
  }
  std::vector<Ref> args = parse_function_arguments();
  for (Ref& arg : args) {
    if (arg->kind == Kind::kQuantity && arg->name == "degree") {
      arg = make_call("degree", {arg->args[0]});
    }
    if (name != "det" && !is_scalar(arg)) {
      fail("\\" + name + " without a number");
    }
  }
  Ref result;
  if (takes_many(name)) {
    if (base) fail("\\" + name + " with a subscript");
    result = make_function(name, std::move(args));
  } else if (args.size() != 1) {
    fail("\\" + name + " with several arguments");
  } else if (base) {
    if (name != "log") fail("\\" + name + " with a subscript");
    result = divide(make_function("ln", args), make_function("ln", {base}));
  } else {
    result = elementary(name, args[0]);
  }
  return exponent ? make_pow(result, exponent) : result;
}

// \sum_{k=a}^{b} body. The new name of the bound variable depends only on the nesting, so that sums
// that differ only in that name are equal.
Ref Parser::parse_big_operator(const std::string& name) {
  Ref low, high;
  for (int k = 0; k < 2; ++k) {
    if (take("_")) low = parse_argument();
    if (take("^")) high = parse_argument();
  }
  if (++depth_ > kMaxParseDepth) fail("nested too deeply");
  const Ref body = parse_term();
  --depth_;
  if (!low || !high) fail("\\" + name + " without bounds");
  if (low->kind != Kind::kRelation || low->ops != std::vector<std::string>{"="} ||
      low->args[0]->kind != Kind::kSymbol) {
    fail("\\" + name + " without a variable");
  }
  const Ref bound = make_symbol("#" + std::to_string(depth_));
  return make_call(name + ":",
                   {low->args[1], high, bound, substitute(body, low->args[0]->name, bound)});
}

Ref Parser::parse_environment(const std::string& kind) {
  const bool determinant = kind == "vmatrix";
  static const char* const kMatrices[] = {"pmatrix", "bmatrix",     "matrix", "Bmatrix",
                                          "array",   "smallmatrix", "vmatrix"};
  bool known = false;
  for (const char* name : kMatrices) known |= kind == name;
  if (!known) fail("environment '" + kind + "' is not supported");
  std::vector<std::vector<Ref>> rows(1);
  while (peek().kind != Token::kEnd && peek().text.compare(0, 4, "end:") != 0) {
    if (take("\\\\")) {
      if (!rows.back().empty()) rows.emplace_back();
      continue;
    }
    rows.back().push_back(parse_item());
    if (!take("&") && !is("\\\\") && peek().text.compare(0, 4, "end:") != 0) {
      fail("a matrix cell cannot be read");
    }
  }
  if (at_end()) fail("a matrix is never closed");
  ++at_;
  if (rows.back().empty()) rows.pop_back();
  if (rows.empty()) fail("an empty matrix");
  auto matrix = std::make_shared<Node>();
  matrix->kind = Kind::kMatrix;
  matrix->columns = static_cast<int>(rows[0].size());
  for (const auto& row : rows) {
    if (row.size() != rows[0].size()) fail("rows of unequal length");
    matrix->args.insert(matrix->args.end(), row.begin(), row.end());
  }
  if (determinant) return make_call("det", {matrix});
  return matrix;
}

}  // namespace slimexx::reward::latex
