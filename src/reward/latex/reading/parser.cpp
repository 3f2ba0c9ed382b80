#include "reward/latex/reading/parser.h"

#include <algorithm>

#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward::latex {
namespace {

bool is_currency(std::string_view word) {
  return word == "dollar" || word == "euro" || word == "pound";
}

// Prose: only words and punctuation, with at least one word that is not a connective.
bool is_prose(const std::vector<Token>& tokens) {
  bool word = false;
  for (const Token& token : tokens) {
    if (token.kind == Token::kWord && !is_connective(token.text)) word = true;
    if (token.kind == Token::kNumber || token.kind == Token::kCommand) return false;
    static constexpr std::string_view kPunctuation[] = {",", ".", ";", ":", "!",
                                                        "?", "'", "{", "}"};
    if (token.kind == Token::kSymbol && std::find(std::begin(kPunctuation), std::end(kPunctuation),
                                                  token.text) == std::end(kPunctuation)) {
      return false;
    }
  }
  return word;
}

Ref make_text(const std::vector<Token>& tokens, size_t begin, size_t end) {
  std::string words;
  for (size_t i = begin; i < end; ++i) {
    const Token& token = tokens[i];
    if (token.kind == Token::kSymbol &&
        (token.text == "{" || token.text == "}" || token.text == "." || token.text == "!")) {
      continue;
    }
    if (!words.empty() && token.space_before) words += ' ';
    words += token.text + token.repeat;
  }
  words = to_lower_ascii(words);
  for (std::string_view article : {"a ", "an ", "the "}) {
    if (words.compare(0, article.size(), article) == 0) {
      words.erase(0, article.size());
      break;
    }
  }
  return make_node(Kind::kText, words, {});
}

}  // namespace

Ref parse_answer(const std::vector<Token>& tokens, std::string* why) {
  if (tokens.size() > kMaxTokens) {
    *why = "too long to be read as mathematics";
    return nullptr;
  }
  if (tokens.size() <= 1) {
    *why = "empty";
    return nullptr;
  }
  if (is_prose(tokens)) return make_text(tokens, 0, tokens.size() - 1);
  try {
    return Parser(tokens).parse_all();
  } catch (const ParseFailure& failure) {
    *why = failure.why;
    return nullptr;
  }
}

bool Parser::take(std::string_view symbol) {
  if (!is(symbol)) return false;
  ++at_;
  return true;
}

void Parser::expect(std::string_view symbol) {
  if (!take(symbol)) fail("'" + std::string(symbol) + "' expected, not '" + peek().text + "'");
}

Ref Parser::parse_all() {
  const Ref answer = join_items(parse_items());
  if (!at_end()) fail("cannot be parsed from '" + peek().text + "'");
  return answer;
}

Ref Parser::join_items(Items items) {
  if (items.items.empty()) fail("empty");
  if (items.items.size() == 1) return items.items[0];
  return make_node(Kind::kList, items.joint, std::move(items.items));
}

bool Parser::ends_item(const Token& token) {
  if (token.kind == Token::kEnd) return true;
  if (token.kind == Token::kWord) return is_connective(token.text);
  if (token.kind == Token::kCommand) return token.text.starts_with("end:");
  static constexpr std::string_view kEnds[] = {",", ";",    ")",  "]",      "}",    "\\}",
                                               "&", "\\\\", ">>", "rfloor", "rceil"};
  return token.kind == Token::kSymbol &&
         std::find(std::begin(kEnds), std::end(kEnds), token.text) != std::end(kEnds);
}

bool Parser::take_joint(std::string& joint) {
  bool any = false;
  for (;; any = true) {
    if (take(",")) {
      if (joint.empty()) joint = ",";
    } else if (take(";")) {
      if (joint.empty() || joint == ",") joint = ";";
    } else if (peek().kind == Token::kWord && is_connective(peek().text)) {
      joint = peek().text;
      ++at_;
    } else {
      return any;
    }
  }
}

// "1, 2 and 3"; "a, b; c, d" is a list of the tuples (a, b) and (c, d).
Parser::Items Parser::parse_items() {
  Items all;
  std::vector<std::vector<Ref>> groups(1);
  if (at_item_end()) return all;
  for (;;) {
    groups.back().push_back(parse_item());
    std::string joint;
    if (!take_joint(joint)) break;
    if (at_item_end()) break;
    if (joint == ";") groups.emplace_back();
    if (all.joint.empty() || all.joint == "," || joint == "or") all.joint = joint;
  }
  const bool nested = groups.size() > 1 && std::any_of(groups.begin(), groups.end(),
                                                       [](auto& g) { return g.size() > 1; });
  for (auto& group : groups) {
    if (nested) {
      all.items.push_back(group.size() == 1 ? group[0]
                                            : make_node(Kind::kTuple, "()", std::move(group)));
    } else {
      for (Ref& item : group) all.items.push_back(std::move(item));
    }
  }
  return all;
}

Ref Parser::parse_item() {
  if (++depth_ > kMaxParseDepth) fail("nested too deeply");
  Ref item;
  if (peek().kind == Token::kWord && is_currency(peek().text)) {  // the sign before its number
    const std::string unit = peek().text;
    ++at_;
    item = with_unit(parse_relation());
    item = make_node(Kind::kQuantity, unit, {item->kind == Kind::kQuantity ? item->args[0] : item});
  } else {
    item = with_unit(parse_relation());
  }
  --depth_;
  return item;
}

Ref Parser::parse_text() {
  const size_t begin = at_;
  int open = 0;
  // "Area = 12", "Area: 12"
  const auto names_value = [&] { return open == 0 && at_ > begin && (is("=") || is(":")); };
  while (!at_end() && (open > 0 || !at_item_end()) && !names_value()) {
    if (is("(") || is("[") || is("{")) ++open;
    if (is(")") || is("]") || is("}")) --open;
    ++at_;
  }
  return make_text(tokens_, begin, at_);
}

std::string Parser::take_relation_symbol() {
  static constexpr std::string_view kRelations[] = {
      "=", "<", ">", "<=", ">=", "!=", "~", "in", "=="};
  if (peek().kind != Token::kSymbol) return "";
  const bool after_text = at_ > 0 && tokens_[at_ - 1].kind == Token::kWord;
  if (after_text && take(":")) return "=";
  for (std::string_view symbol : kRelations) {
    if (take(symbol)) return std::string(symbol);
  }
  return "";
}

Ref Parser::parse_relation() {
  if (is("=") || is("~")) ++at_;  // "= 5" and "\approx 5" without a left side
  std::vector<Ref> args;
  if (Ref head = parse_head()) {
    args.push_back(head);
  } else {
    args.push_back(with_early_unit(parse_side()));
  }
  std::vector<std::string> ops;
  for (;;) {
    const bool bracket = at_bracketed_approximation();  // 2\sqrt{3} (\approx 3.46)
    if (bracket) ++at_;
    const std::string op = take_relation_symbol();
    if (op.empty()) break;
    ops.push_back(op);
    args.push_back(with_early_unit(parse_side()));
    if (take("...")) ops.back() = "~";  // \sqrt{2} = 1.414\ldots
    if (bracket) expect(")");
  }
  if (ops.empty()) return args[0];
  return make_relation(std::move(args), std::move(ops));
}

bool Parser::at_bracketed_approximation() const {
  return is("(") && peek(1).kind == Token::kSymbol && peek(1).text == "~";
}

Ref Parser::parse_side() {
  if (peek().kind != Token::kWord) return parse_set_operations();
  if (!is_currency(peek().text)) {
    if (is_connective(peek().text)) fail("unexpected word '" + peek().text + "'");
    return parse_text();
  }
  const std::string currency = peek().text;
  ++at_;
  return make_node(Kind::kQuantity, currency, {parse_set_operations()});
}

Ref Parser::parse_set_operations() {
  Ref left = parse_ratio();
  int count = 0;
  while (is("cup") || is("cap") || is("setminus")) {
    if (++count > kMaxParseDepth) fail("too many set operations");
    const std::string op = peek().text;
    ++at_;
    left = make_call(op, {left, parse_ratio()});
  }
  return left;
}

Ref Parser::parse_ratio() {
  Ref first = parse_infix();
  if (!is(":") || in_set_) return first;
  std::vector<Ref> parts{first};
  while (take(":")) parts.push_back(parse_infix());
  return make_call("ratio", std::move(parts));
}

// {a \over b}: the operands are everything before and after \over in the group.
Ref Parser::parse_infix() {
  const Ref top = parse_sum();
  static constexpr std::pair<std::string_view, const char*> kFunctions[] = {
      {"choose", "binom"}, {"atop", "atop"}, {"brack", "stirling1"}, {"brace", "stirling2"}};
  for (const auto& [symbol, function] : kFunctions) {
    if (take(symbol)) return make_function(function, {top, parse_sum()});
  }
  return take("over") ? divide(top, parse_sum()) : top;
}

Ref Parser::parse_sum() {
  std::vector<Ref> terms;
  if (!is("pm") && !is("mp")) terms.push_back(parse_signed_term());
  while (is("+") || is("-") || is("pm") || is("mp")) {
    const std::string sign = peek().text;
    if (sign == "+" || sign == "-") {
      terms.push_back(parse_signed_term());
      continue;
    }
    ++at_;
    terms.push_back(make_call(sign, {parse_term()}));
  }
  return make_add(std::move(terms));
}

Ref Parser::parse_signed_term() {
  bool negative = false;
  while (is("+") || is("-")) {
    negative ^= is("-");
    ++at_;
  }
  if (!negative && (is("pm") || is("mp"))) {
    const std::string sign = peek().text;
    ++at_;
    return make_call(sign, {parse_term()});
  }
  const Ref term = parse_term();
  return negative ? negate(term) : term;
}

bool Parser::starts_factor() const {
  const Token& token = peek();
  switch (token.kind) {
    case Token::kNumber: {
      const Token& before = tokens_[at_ - 1];
      return before.kind == Token::kSymbol && before.text != "%" && before.text != "'";
    }
    case Token::kName:
      return !at_unit();
    case Token::kCommand:
      return !token.text.starts_with("end:") && !at_unit();
    case Token::kSymbol:
      if (token.text == "|") return bars_ == 0 && !in_set_;
      if (at_bracketed_approximation()) return false;
      if (at_unit()) return false;
      return token.text == "(" || token.text == "[" || token.text == "{" || token.text == "\\{" ||
             token.text == "lfloor" || token.text == "lceil" || token.text == "sci";
    default:
      return false;
  }
}

Ref Parser::parse_term() {
  std::vector<Ref> factors{parse_factor()};
  for (;;) {
    if (take("*")) {
      factors.push_back(parse_factor());
    } else if (take("/")) {
      factors.push_back(make_pow(parse_factor(), make_number(-1)));
    } else if (take("mod")) {
      factors = {make_function("mod", {make_mul(std::move(factors)), parse_factor()})};
    } else if (starts_factor()) {
      factors.push_back(parse_factor());
    } else {
      break;
    }
  }
  if (factors.size() == 1) return factors[0];
  for (const Ref& factor : factors) {
    if (factor->kind == Kind::kTuple || factor->kind == Kind::kList || factor->kind == Kind::kSet ||
        factor->kind == Kind::kRelation || factor->kind == Kind::kText) {
      fail("a product with a bracketed list");
    }
  }
  return make_mul(std::move(factors));
}

}  // namespace slimexx::reward::latex
