// Parses numbers, names, brackets and their suffixes.
#include <algorithm>
#include <array>

#include "reward/latex/exact.h"
#include "reward/latex/reading/parser.h"
#include "reward/latex/reading/words.h"

namespace slimexx::reward::latex {

Ref Parser::parse_factor() {
  bool negative = false;
  while (is("+") || is("-")) {  // 2 * -3
    negative ^= is("-");
    ++at_;
  }
  if (++depth_ > kMaxParseDepth) fail("nested too deeply");
  Ref factor = parse_postfix(parse_primary());
  --depth_;
  return negative ? negate(factor) : factor;
}

Ref Parser::parse_postfix(Ref base) {
  for (int count = 0;; ++count) {
    if (count > kMaxParseDepth) fail("too many signs after a value");
    if (is("{") && peek(1).kind == Token::kSymbol && peek(1).text == "}") {  // 90{}^\circ
      at_ += 2;
    } else if (take("degree") || (is_number(base) && take("circ")) || take_degree_exponent(base)) {
      base = make_call("degree", {base});
      const bool scale = peek().kind == Token::kName && (peek().text == "C" || peek().text == "F");
      if (scale) {
        base =
            make_node(Kind::kQuantity, peek().text == "C" ? "degree celsius" : "degree fahrenheit",
                      {base->args[0]});
        ++at_;
      }
    } else if (take("^")) {
      if (is("'")) fail("a raised prime");
      base = make_pow(base, parse_exponent());
    } else if (take("!")) {
      base = make_function(take("!") ? "factorial2" : "factorial", {base});
    } else if (take("%")) {
      base = make_call("percent", {base});
    } else if (is("'") && is_number(base)) {
      const bool inches = peek(1).text == "'";
      at_ += inches ? 2 : 1;
      base = make_node(Kind::kQuantity, inches ? "inch" : "foot", {base});
    } else if (is("_") && is_number(base) && is_integer(base->value)) {
      ++at_;
      const Ref radix = parse_argument();
      if (!is_number(radix)) fail("a base that is not a number");
      auto node = std::make_shared<Node>();
      node->kind = Kind::kBase;
      node->value = base->value;
      node->args = {radix};
      base = node;
    } else {
      return base;
    }
  }
}

// Takes ^\circ, ^{\circ}, and ^o unless it is a power of a letter.
bool Parser::take_degree_exponent(const Ref& base) {
  const size_t start = at_;
  if (!take("^")) return false;
  const bool braced = take("{");
  const bool letter = peek().kind == Token::kName && (peek().text == "o" || peek().text == "O") &&
                      (peek().upright || base->kind != Kind::kSymbol);
  if (letter || is("circ") || is("degree")) {
    ++at_;
    if (!braced || take("}")) return true;
  }
  at_ = start;
  return false;
}

Ref Parser::parse_exponent() {
  bool negative = false;
  while (is("-") || is("+")) {
    negative ^= is("-");
    ++at_;
  }
  Ref exponent = parse_argument();
  // 2^3^4 is 2^(3^4)
  if (is("^")) {
    ++at_;
    if (++depth_ > kMaxParseDepth) fail("nested too deeply");
    exponent = make_pow(exponent, parse_exponent());
    --depth_;
  }
  return negative ? negate(exponent) : exponent;
}

Ref Parser::parse_argument() {
  if (is("{")) return parse_group_value();
  if (++depth_ > kMaxParseDepth) fail("nested too deeply");
  const Ref argument = parse_primary();
  --depth_;
  return argument;
}

Ref Parser::parse_group_value() {
  expect("{");
  const int bars = bars_;
  const bool in_set = in_set_;
  bars_ = 0;
  in_set_ = false;
  Ref value = join_items(parse_items());
  bars_ = bars;
  in_set_ = in_set;
  expect("}");
  // In \frac{180^\circ}{7} the degree sign applies to the quotient.
  for (const char* mark : {"degree", "percent"}) {
    const bool marked = value->kind == Kind::kQuantity &&
                        value->name == (mark[0] == 'd' ? std::string("degree") : std::string("%"));
    if (marked) return make_call(mark, {value->args[0]});
  }
  return value;
}

Ref Parser::parse_primary() {
  const Token& token = peek();
  switch (token.kind) {
    case Token::kNumber:
      return parse_number();
    case Token::kName:
      return parse_name();
    case Token::kCommand:
      return parse_command();
    case Token::kSymbol:
      break;
    default:
      fail(token.kind == Token::kEnd ? "ends too early" : "unexpected word '" + token.text + "'");
  }
  if (token.text == "_" || token.text == "^") return parse_prescript();
  if (token.text == "{") {
    const bool empty = peek(1).kind == Token::kSymbol && peek(1).text == "}";
    if (!empty) return parse_group_value();
    at_ += 2;
    if (is("_") || is("^")) return parse_prescript();
    fail("empty braces");
  }
  if (token.text == "(" || token.text == "[" || token.text == "<<") return parse_brackets();
  if (token.text == "\\{") return parse_set();
  if (token.text == "|") return parse_between("|", "abs");
  if (token.text == "lfloor") return parse_between("rfloor", "floor");
  if (token.text == "lceil") return parse_between("rceil", "ceil");
  if (token.text == "sci") return parse_number();
  fail("unexpected '" + token.text + "'");
}

// _nC_k and ^nC_k are binomials; with P, they count ordered selections of k objects.
Ref Parser::parse_prescript() {
  ++at_;
  const Ref n = parse_argument();
  const bool chosen = peek().text == "C", ordered = peek().text == "P";
  if (peek().kind != Token::kName || !(chosen || ordered) || peek(1).text != "_") {
    fail("an empty script");
  }
  at_ += 2;
  const Ref k = parse_argument();
  if (chosen) return make_function("binom", {n, k});
  return divide(make_function("factorial", {n}), make_function("factorial", {subtract(n, k)}));
}

Ref Parser::parse_number() {
  const bool scientific = take("sci");
  const Token& token = peek();
  const auto value = parse_decimal(token.text, token.repeat);
  if (!value) fail("a number with too many digits");
  ++at_;
  const Ref number = make_number(*value);
  if (scientific) {
    const auto digits = parse_decimal(peek().text);
    if (!digits) fail("a number with too many digits");
    const Ref exponent = make_number(peek().repeat == "-" ? Rational(-*digits) : *digits);
    ++at_;
    return make_mul({number, make_pow(make_number(10), exponent)});
  }
  return token.text.find('.') == std::string::npos ? parse_mixed_number(number) : number;
}

// 1\frac{2}{3}, 1{2\over3} and "1 2/3": an integer before a proper fraction of integers.
Ref Parser::parse_mixed_number(const Ref& whole) {
  const size_t start = at_;
  auto proper = [](const Ref& top, const Ref& bottom) {
    return is_number(top) && is_number(bottom) && is_integer(top->value) &&
           is_integer(bottom->value) && top->value > 0 && top->value < bottom->value;
  };
  if (is_command("frac")) {
    ++at_;
    const Ref top = is("{") || peek().kind == Token::kNumber ? parse_argument() : nullptr;
    const Ref bottom =
        top && (is("{") || peek().kind == Token::kNumber) ? parse_argument() : nullptr;
    if (bottom && proper(top, bottom))
      return make_number(whole->value + top->value / bottom->value);
  } else if (is("{") && peek(1).kind == Token::kNumber && peek(2).text == "over") {
    const Ref fraction = parse_group_value();
    if (is_number(fraction) && fraction->value > 0 && fraction->value < 1) {
      return make_number(whole->value + fraction->value);
    }
  } else if (peek().kind == Token::kNumber && peek().space_before && peek(1).text == "/" &&
             peek(2).kind == Token::kNumber) {
    const auto top = parse_decimal(peek().text), bottom = parse_decimal(peek(2).text);
    if (top && bottom && proper(make_number(*top), make_number(*bottom))) {
      at_ += 3;
      return make_number(whole->value + *top / *bottom);
    }
  }
  at_ = start;
  return whole;
}

Ref Parser::parse_name() {
  std::string name = peek().text;
  ++at_;
  if (name == "emptyset") return make_node(Kind::kSet, "", {});
  if (name == "RR") return make_call("set:R", {});
  while (is("'")) {
    name += '\'';
    ++at_;
    if (name.size() > 32) fail("too many primes");
  }
  if (name == "Gamma" && is("(")) {
    const std::vector<Ref> args = parse_function_arguments();
    if (args.size() != 1) fail("Gamma with several arguments");
    return make_function("factorial", {subtract(args[0], make_number(1))});
  }
  if (name.size() > 1 && name.back() == '\'' && is("(")) {
    std::vector<Ref> args = parse_function_arguments();
    return make_call("apply:" + name, std::move(args));
  }
  if (is("_")) return with_subscript(name);
  static constexpr std::string_view kFunctionLetters[] = {"f", "g", "F", "G", "P", "Q", "W", "H"};
  const bool function = std::find(std::begin(kFunctionLetters), std::end(kFunctionLetters), name) !=
                        std::end(kFunctionLetters);
  if (function && is("(")) return make_call("apply:" + name, parse_function_arguments());
  return make_symbol(name);
}

// x_1, x_{max}: part of the name. a_n, F_{n-1}: an index that algebra may change.
Ref Parser::with_subscript(const std::string& name) {
  expect("_");
  if (auto text = simple_subscript()) return make_symbol(name + "_" + *text);
  return make_call("index:" + name, {parse_argument()});
}

std::optional<std::string> Parser::simple_subscript() {
  const size_t start = at_;
  const bool braced = take("{");
  std::string text;
  int count = 0;
  bool lower = false;
  while (peek().kind == Token::kNumber || peek().kind == Token::kName ||
         peek().kind == Token::kWord) {
    lower = peek().kind == Token::kName && peek().text.size() == 1 && peek().text[0] >= 'a';
    text += peek().text;
    ++at_;
    ++count;
    if (!braced) break;
  }
  const bool closed = !braced || take("}");
  if (count == 0 || !closed || (count == 1 && lower)) {
    at_ = start;
    return std::nullopt;
  }
  return text;
}

Ref Parser::parse_brackets() {
  const std::string open = peek().text;
  ++at_;
  const int bars = bars_;
  const bool in_set = in_set_;
  bars_ = 0;
  in_set_ = false;
  Items items = parse_items();
  bars_ = bars;
  in_set_ = in_set;
  const std::string close = peek().text;
  if (!is(")") && !is("]") && !is(">>")) fail("a bracket is never closed");
  if ((open == "<<") != (close == ">>")) fail("brackets do not match");
  ++at_;
  if (items.items.empty()) fail("empty brackets");
  if (items.items.size() == 1 && (open == "(") == (close == ")")) {
    const Ref& only = items.items[0];
    if (only->kind == Kind::kList) fail("a list in brackets");
    if (is_call(only, "atop")) {  // \left( n \atop k \right)
      return make_function(open == "(" ? "binom" : "stirling1", only->args);
    }
    return only;
  }
  if (items.joint == "or") fail("alternatives in brackets");
  return make_node(Kind::kTuple, open.substr(0, 1) + close.substr(0, 1), std::move(items.items));
}

// \{a, b\} and \{x \mid condition\}
Ref Parser::parse_set() {
  expect("\\{");
  const int bars = bars_;
  const bool in_set = in_set_;
  bars_ = 0;
  in_set_ = true;
  Items items = parse_items();
  in_set_ = false;
  Ref set;
  if (items.items.size() == 1 && is_call(items.items[0], "atop")) {  // \{ n \atop k \}
    set = make_function("stirling2", items.items[0]->args);
  } else if (items.items.size() == 1 && (take("|") || take(":"))) {
    const Ref condition = join_items(parse_items());
    set = make_call("such_that", {items.items[0], condition});
  } else {
    set = make_node(Kind::kSet, "", std::move(items.items));
  }
  bars_ = bars;
  in_set_ = in_set;
  if (!take("\\}")) expect("}");
  return set;
}

Ref Parser::parse_between(std::string_view close, const char* function) {
  ++at_;
  const bool in_set = in_set_;
  in_set_ = false;
  if (close == "|") ++bars_;
  const Ref inside = parse_infix();
  if (close == "|") --bars_;
  in_set_ = in_set;
  expect(close);
  if (inside->kind == Kind::kMatrix && close == "|") return make_call("det", {inside});
  return make_function(function, {inside});
}

}  // namespace slimexx::reward::latex
