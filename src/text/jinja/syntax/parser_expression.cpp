#include <unordered_set>

#include "text/jinja/syntax/parser.h"

namespace slimexx::text::jinja {

bool Parser::at_tuple_end(const TupleRules& rules) const {
  const TokenKind kind = current().kind;
  if (kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || at_operator(")"))
    return true;
  return (rules.in_ends && at_name("in")) || (rules.recursive_ends && at_name("recursive"));
}

Expr* Parser::parse_tuple(const TupleRules& rules) {
  const Nested nested(*this);
  const int line = current().line;
  std::vector<Expr*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end(rules)) break;
    items.push_back(rules.simplified    ? parse_primary(rules.with_namespace)
                    : rules.conditional ? parse_expression()
                                        : parse_or());
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!rules.parenthesized)
      fail_here(fmt::format("expected an expression, got {}", describe_current()));
  }
  return make(ExprKind::kTuple, line, std::move(items));
}

Expr* Parser::parse_expression() {
  const Nested nested(*this);
  Expr* value = parse_or();
  while (at_name("if")) {
    const int line = take().line;
    Expr* test = parse_or();
    Expr* otherwise = skip_name("else") ? parse_expression() : nullptr;
    value = make(ExprKind::kConditional, line, {test, value, otherwise});
  }
  return value;
}

Expr* Parser::parse_or() {
  Expr* left = parse_and();
  while (at_name("or")) {
    const int line = take().line;
    left = make(ExprKind::kOr, line, {left, parse_and()});
  }
  return left;
}

Expr* Parser::parse_and() {
  Expr* left = parse_not();
  while (at_name("and")) {
    const int line = take().line;
    left = make(ExprKind::kAnd, line, {left, parse_not()});
  }
  return left;
}

Expr* Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nested nested(*this);
  const int line = take().line;
  return make(ExprKind::kUnaryNot, line, {parse_not()});
}

bool Parser::take_comparison(Op& op) {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe},
                                                             {"<", Op::kLt},  {"<=", Op::kLe},
                                                             {">", Op::kGt},  {">=", Op::kGe}};
  for (const auto& [text, candidate] : kOps) {
    if (skip_operator(text)) {
      op = candidate;
      return true;
    }
  }
  if (skip_name("in")) {
    op = Op::kIn;
    return true;
  }
  if (at_name("not") && look().kind == TokenKind::kName && look().text == "in") {
    take();
    take();
    op = Op::kNotIn;
    return true;
  }
  return false;
}

Expr* Parser::parse_compare() {
  const int line = current().line;
  std::vector<Expr*> operands = {parse_sum()};
  std::vector<Op> ops;
  for (Op op; take_comparison(op);) {
    ops.push_back(op);
    operands.push_back(parse_sum());
  }
  if (ops.empty()) return operands[0];
  Expr* compare = make(ExprKind::kCompare, line, std::move(operands));
  compare->ops = std::move(ops);
  return compare;
}

Expr* Parser::parse_sum() {
  Expr* left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const Token op = take();
    left = make_binary(op.text == "+" ? Op::kAdd : Op::kSub, op.line, left, parse_concat());
  }
  return left;
}

Expr* Parser::parse_concat() {
  const int line = current().line;
  std::vector<Expr*> parts = {parse_product()};
  while (skip_operator("~")) parts.push_back(parse_product());
  return parts.size() == 1 ? parts[0] : make(ExprKind::kConcat, line, std::move(parts));
}

Expr* Parser::parse_product() {
  Expr* left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    const Token op = take();
    const Op kind = op.text == "*"    ? Op::kMul
                    : op.text == "/"  ? Op::kDiv
                    : op.text == "//" ? Op::kFloorDiv
                                      : Op::kMod;
    left = make_binary(kind, op.line, left, parse_power());
  }
  return left;
}

// Left-associative, unlike Python's **.
Expr* Parser::parse_power() {
  Expr* left = parse_unary(true);
  while (at_operator("**")) {
    const int line = take().line;
    left = make_binary(Op::kPow, line, left, parse_unary(true));
  }
  return left;
}

Expr* Parser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  const int line = current().line;
  Expr* node = nullptr;
  if (skip_operator("-")) {
    node = make(ExprKind::kNegate, line, {parse_unary(false)});
  } else if (skip_operator("+")) {
    node = make(ExprKind::kPlus, line, {parse_unary(false)});
  } else {
    node = parse_primary(false);
  }
  node = parse_postfix(node);
  return with_filter ? parse_filters_and_tests(node) : node;
}

Expr* Parser::parse_primary(bool with_namespace) {
  const int line = current().line;
  switch (current().kind) {
    case TokenKind::kName:
      return parse_name(with_namespace);
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      const Token number = take();
      Expr* constant = make(ExprKind::kConstant, line);
      constant->constant =
          number.kind == TokenKind::kInteger ? ConstantKind::kInt : ConstantKind::kFloat;
      constant->integer = number.integer;
      constant->real = number.real;
      return constant;
    }
    default:
      break;
  }
  if (skip_operator("(")) {
    TupleRules rules;
    rules.parenthesized = true;
    Expr* inner = parse_tuple(rules);
    expect_operator(")");
    return inner;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail_here(fmt::format("unexpected {}", describe_current()));
}

Expr* Parser::parse_name(bool with_namespace) {
  const Token token = take();
  const std::string& word = token.text;
  if (word == "true" || word == "True" || word == "false" || word == "False") {
    Expr* constant = make(ExprKind::kConstant, token.line);
    constant->constant = ConstantKind::kBool;
    constant->integer = word == "true" || word == "True";
    return constant;
  }
  if (word == "none" || word == "None") return make(ExprKind::kConstant, token.line);
  if (with_namespace && skip_operator(".")) {
    Expr* ref = make(ExprKind::kNamespaceRef, token.line);
    ref->name = word;
    ref->string_index = intern(expect_identifier());
    return ref;
  }
  Expr* name = make(ExprKind::kName, token.line);
  name->name = word;
  return name;
}

Expr* Parser::parse_string() {
  Expr* constant = make(ExprKind::kConstant, current().line);
  constant->constant = ConstantKind::kString;
  std::string text;
  while (current().kind == TokenKind::kString) text += take().text;
  constant->string_index = intern(std::move(text));
  return constant;
}

Expr* Parser::parse_list() {
  const int line = take().line;
  std::vector<Expr*> items;
  while (!at_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    items.push_back(parse_expression());
  }
  take();
  return make(ExprKind::kList, line, std::move(items));
}

Expr* Parser::parse_dict() {
  const int line = take().line;
  std::vector<Expr*> items;
  while (!at_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (at_operator("}")) break;
    items.push_back(parse_expression());
    expect_operator(":");
    items.push_back(parse_expression());
  }
  take();
  return make(ExprKind::kDict, line, std::move(items));
}

Expr* Parser::parse_postfix(Expr* node) {
  while (true) {
    if (at_operator(".")) {
      node = parse_attribute(node);
    } else if (at_operator("[")) {
      node = parse_item(node);
    } else if (at_operator("(")) {
      node = parse_call_expression(node);
    } else {
      return node;
    }
  }
}

Expr* Parser::parse_filters_and_tests(Expr* node) {
  while (true) {
    if (skip_operator("|")) {
      node = parse_filter(node);
    } else if (at_name("is")) {
      node = parse_test(node);
    } else if (at_operator("(")) {
      node = parse_call_expression(node);
    } else {
      return node;
    }
  }
}

Expr* Parser::parse_attribute(Expr* node) {
  const int line = take().line;
  if (current().kind == TokenKind::kName) {
    Expr* attribute = make(ExprKind::kAttribute, line, {node});
    attribute->name = take().text;
    attribute->string_index = intern(attribute->name);
    return attribute;
  }
  if (current().kind != TokenKind::kInteger) fail_here("expected a name or a number after '.'");
  Expr* index = make(ExprKind::kConstant, line);
  index->constant = ConstantKind::kInt;
  index->integer = take().integer;
  return make(ExprKind::kItem, line, {node, index});
}

Expr* Parser::parse_item(Expr* node) {
  const int line = take().line;
  std::vector<Expr*> subscripts;
  while (!at_operator("]")) {
    if (!subscripts.empty()) expect_operator(",");
    subscripts.push_back(parse_subscript());
  }
  take();
  Expr* index =
      subscripts.size() == 1 ? subscripts[0] : make(ExprKind::kTuple, line, std::move(subscripts));
  return make(ExprKind::kItem, line, {node, index});
}

Expr* Parser::parse_subscript() {
  const int line = current().line;
  std::vector<Expr*> parts;
  if (at_operator(":")) {
    parts.push_back(nullptr);
  } else {
    parts.push_back(parse_expression());
    if (!at_operator(":")) return parts[0];
  }
  while (parts.size() < 3 && skip_operator(":")) {
    const bool empty = at_operator(":") || at_operator("]") || at_operator(",");
    parts.push_back(empty ? nullptr : parse_expression());
  }
  parts.resize(3, nullptr);
  return make(ExprKind::kSlice, line, std::move(parts));
}

Expr* Parser::parse_call_expression(Expr* callee) {
  Expr* call = make(ExprKind::kCall, current().line, {callee});
  parse_arguments(*call);
  return finish(call);
}

void Parser::parse_arguments(Expr& call) {
  expect_operator("(");
  bool first = true, positional = true;
  std::unordered_set<std::string> keys;
  const auto ensure = [&](bool holds) {
    if (!holds) fail_here("the arguments of a call are out of order");
  };
  while (!at_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (at_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(call.star_args == nullptr && call.star_keywords == nullptr);
      call.star_args = parse_expression();
      positional = false;
    } else if (skip_operator("**")) {
      ensure(call.star_keywords == nullptr);
      call.star_keywords = parse_expression();
      positional = false;
    } else if (current().kind == TokenKind::kName && look().kind == TokenKind::kOperator &&
               look().text == "=") {
      ensure(call.star_keywords == nullptr);
      const std::string key = take().text;
      take();
      ensure(keys.insert(key).second);
      call.keywords.emplace_back(key, parse_expression());
      positional = false;
    } else {
      ensure(positional);
      call.args.push_back(parse_expression());
    }
  }
  take();
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (skip_operator(".")) name += "." + expect_identifier();
  return name;
}

Expr* Parser::parse_filter(Expr* input) {
  Expr* filter = make(ExprKind::kFilter, current().line, {input});
  filter->name = parse_dotted_name();
  if (at_operator("(")) parse_arguments(*filter);
  return finish(filter);
}

Expr* Parser::parse_filter_chain(Expr* input) {
  while (skip_operator("|")) input = parse_filter(input);
  return input;
}

Expr* Parser::parse_test(Expr* node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  Expr* test = make(ExprKind::kTest, line, {node});
  test->name = parse_dotted_name();
  const TokenKind kind = current().kind;
  const bool starts_argument = kind == TokenKind::kName || kind == TokenKind::kString ||
                               kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
                               at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if (starts_argument && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail_here("tests cannot be chained with 'is'");
    const Nested nested(*this);
    test->args.push_back(parse_postfix(parse_primary(false)));
  }
  finish(test);
  return negated ? make(ExprKind::kUnaryNot, line, {test}) : test;
}

}  // namespace slimexx::text::jinja
