// Parses the text after a value: units, words that multiply it, percent and degree signs.
#include "reward/latex/reading/parser.h"
#include "reward/latex/reading/words.h"

namespace slimexx::reward::latex {
namespace {

// Units are short; beyond this many tokens upright letters count as variables.
constexpr size_t kMaxUnitTokens = 40;

// 5%, -5%, 2 * 5 degrees: the value without its mark, if the mark is at the very end.
Ref strip_mark(const Ref& value, const char* mark) {
  if (is_call(value, mark)) return value->args[0];
  if (value->kind == Kind::kMul && is_call(value->args.back(), mark)) {
    std::vector<Ref> args = value->args;
    args.back() = args.back()->args[0];
    return make_mul(std::move(args));
  }
  return nullptr;
}

bool is_symbol_token(const Token& token, std::string_view text) {
  return token.kind == Token::kSymbol && token.text == text;
}

}  // namespace

// Scans words, letters, powers, slashes and brackets up to the item's end; nullopt if they are not
// a unit or do not end within `limit` tokens.
std::optional<std::string> Parser::scan_unit(size_t& at, size_t limit) const {
  const size_t last = at + limit;
  auto token = [&](size_t ahead = 0) -> const Token& {
    return tokens_[std::min(at + ahead, tokens_.size() - 1)];
  };
  auto take = [&](std::string_view symbol) {
    const bool there = is_symbol_token(token(), symbol);
    at += there;
    return there;
  };
  std::string unit;
  int brackets = 0;
  int fraction = 0;  // 1 above, 2 below the line of \frac{m}{s}
  // A relation continues with another side: 5 \text{ cm} = 0.05 \text{ m}.
  const auto ends = [&] {
    const Token& next = is_symbol_token(token(), "(") ? token(1) : token();
    return ends_item(token()) || is_symbol_token(next, "~") || is_symbol_token(token(), "=");
  };
  while (brackets > 0 || fraction > 0 || !ends()) {
    if (at >= last) return std::nullopt;
    if (token().kind == Token::kWord || token().kind == Token::kName) {
      unit += ' ' + token().text;
      ++at;
    } else if (take("(") || take("[") ||
               (is_symbol_token(token(), "{") && token(1).kind != Token::kNumber && take("{"))) {
      ++brackets;
    } else if (brackets > 0 && (take(")") || take("]") || take("}"))) {
      --brackets;
    } else if (take("^") || take("{")) {
      const bool braced = is_symbol_token(tokens_[at - 1], "{") || take("{");
      const bool negative = take("-");
      if (token().kind != Token::kNumber || token().text.size() > 2) return std::nullopt;
      unit += (negative ? " ^-" : " ^") + token().text;
      ++at;
      if (braced && !take("}")) return std::nullopt;
    } else if (take("/") || take("*")) {
      unit += ' ' + tokens_[at - 1].text;
    } else if (take("degree")) {
      unit += " degree";
    } else if (!unit.empty() && take(".")) {  // sq. ft.
      continue;
    } else if (fraction == 0 && token().kind == Token::kCommand && token().text == "frac" &&
               is_symbol_token(token(1), "{")) {
      at += 2;
      fraction = 1;
    } else if (fraction > 0 && take("}")) {
      if (fraction == 1 && !take("{")) return std::nullopt;
      unit += fraction == 1 ? " /" : "";
      fraction = fraction == 1 ? 2 : 0;
    } else {
      return std::nullopt;
    }
  }
  return unit;
}

std::string Parser::take_unit() {
  const auto unit = scan_unit(at_, kMaxTokens);
  if (!unit) fail("cannot read '" + peek().text + "' in a unit");
  return canonical_unit(*unit);
}

bool Parser::at_unit() const {
  auto is_letter = [](const Token& token) {
    const bool upright = token.upright || token.text == "Omega";
    return token.kind == Token::kName && upright && is_unit_letter(token.text);
  };
  const Token& first = peek();
  auto is_group = [&](size_t ahead) {
    const Token& open = peek(ahead);
    const Token& inside = peek(ahead + 1);
    const bool bracket = is_symbol_token(open, "(") || is_symbol_token(open, "[");
    if (!bracket && !is_symbol_token(open, "{")) return false;
    if (inside.kind != Token::kWord) return is_letter(inside);
    return bracket ? is_known_unit(canonical_unit(inside.text)) : !is_connective(inside.text);
  };
  const bool fraction = first.kind == Token::kCommand && first.text == "frac" &&
                        is_symbol_token(peek(1), "{") && is_group(1);
  const bool prefix = first.kind == Token::kName && is_letter(peek(1)) &&
                      (first.text == "mu" || (peek(1).text == "Omega" && first.upright));
  if (!fraction && !prefix && !is_group(0) && !is_letter(first)) return false;
  if (first.text == "Omega" && !first.space_before) return false;
  if (at_ == 0 || (tokens_[at_ - 1].kind == Token::kName && tokens_[at_ - 1].upright)) return false;
  size_t end = at_;
  if (!scan_unit(end, kMaxUnitTokens)) return false;
  // "12 m of a rope" may have any letters after its first word.
  for (size_t k = at_; k < end && tokens_[k].kind != Token::kWord; ++k) {
    const bool variable =
        tokens_[k].kind == Token::kName && !is_letter(tokens_[k]) && !(k == at_ && prefix);
    if (variable) return false;
  }
  return true;
}

// 2.5 million, 3 dozen. "5 score" may also mean points, so "score" and "gross" multiply only if
// nothing follows.
Ref Parser::take_magnitudes(Ref value) {
  for (;;) {
    const bool braced = is("{") && is_symbol_token(peek(2), "}");  // {\rm million}
    const Token& word = peek(braced ? 1 : 0);
    const auto magnitude = word.kind == Token::kWord ? magnitude_of(word.text) : std::nullopt;
    const bool alone = ends_item(peek(braced ? 3 : 1));
    if (!magnitude || ((word.text == "score" || word.text == "gross") && !alone)) break;
    value = make_mul({value, make_number(*magnitude)});
    at_ += braced ? 3 : 1;
  }
  return value;
}

Ref Parser::with_unit(Ref value) {
  std::vector<Ref> relation;
  std::vector<std::string> ops;
  if (value->kind == Kind::kRelation) {
    relation = value->args;
    ops = value->ops;
    value = relation.back();
  }
  std::string unit;
  if (Ref bare = strip_mark(value, "percent")) {
    value = bare;
    unit = "%";
  } else if (Ref angle = strip_mark(value, "degree")) {
    value = angle;
    unit = "degree";
  }
  if (unit.empty() && is_scalar(value)) value = take_magnitudes(value);
  if (!at_item_end() && (peek().kind == Token::kWord || at_unit())) {
    unit = unit.empty() ? take_unit() : unit + " " + take_unit();
  }
  if (!unit.empty()) value = make_node(Kind::kQuantity, unit, {value});
  if (relation.empty()) return value;
  relation.back() = value;
  return make_relation(std::move(relation), std::move(ops));
}

// The unit of a side before the last: 5\pi\text{ cm} \approx 15.7\text{ cm}.
Ref Parser::with_early_unit(Ref side) {
  const size_t start = at_;
  const Ref value = is_scalar(side) ? take_magnitudes(side) : side;
  std::string unit;
  if (!at_item_end() && (peek().kind == Token::kWord || at_unit())) unit = take_unit();
  if (at_ > start && (is("~") || is("=") || is("(") || is(")"))) {
    return unit.empty() ? value : make_node(Kind::kQuantity, unit, {value});
  }
  at_ = start;
  return side;
}

}  // namespace slimexx::reward::latex
