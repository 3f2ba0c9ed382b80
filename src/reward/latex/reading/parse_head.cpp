// The name of a function where its definition begins: "p(x) =", "f_1(x) =", "f^{-1}(x) =",
// "(f + g)(x) =". Elsewhere p(x) is a product, as a(b + c) is; f, g and a few more are always
// functions (parse_name).
#include <algorithm>

#include "reward/latex/reading/parser.h"

namespace slimexx::reward::latex {
namespace {

constexpr size_t kMaxHeadTokens = 32;

bool is_constant_letter(const Token& token) {
  return token.text == "pi" || token.text == "infty" || token.text == "emptyset" ||
         token.text == "RR";
}

bool is_function_letter(const Token& token) {
  static constexpr std::string_view kLetters[] = {"f", "g", "h", "p", "q", "circ", "+", "-", "*"};
  return std::find(std::begin(kLetters), std::end(kLetters), token.text) != std::end(kLetters);
}

}  // namespace

Ref Parser::parse_head() {
  if (Ref derivative = parse_plain_derivative()) return derivative;
  const size_t start = at_;
  if (auto name = head_name()) {
    std::vector<Ref> parameters = head_parameters();
    if (!parameters.empty() && is("=") && !is_called_later(*name)) {
      return make_call("apply:" + *name, std::move(parameters));
    }
  }
  at_ = start;
  return nullptr;
}

// "dy/dx"
Ref Parser::parse_plain_derivative() {
  const bool derivative = peek().text == "d" && peek(1).kind == Token::kName &&
                          peek(2).text == "/" && peek(3).text == "d" &&
                          peek(4).kind == Token::kName && peek(5).text == "=";
  if (!derivative) return nullptr;
  const Ref d = make_symbol("d");
  const Ref above = make_symbol(peek(1).text), below = make_symbol(peek(4).text);
  at_ += 5;
  return divide(make_mul({d, above}), make_mul({d, below}));
}

// A letter with its primes, subscript and raised index, or "(f + g)".
std::optional<std::string> Parser::head_name() {
  std::string name;
  if (take("(")) {
    while (is_function_letter(peek())) name += tokens_[at_++].text;
    return name.size() > 1 && take(")") ? std::optional(name) : std::nullopt;
  }
  // \hat{f}, and \vec{r} without its arrow
  const bool accent = is_command("hat") || is_command("tilde") || is_command("overline");
  if (accent) name = tokens_[at_++].text + ":";
  const bool braced = take("{");
  if (peek().kind != Token::kName || is_constant_letter(peek())) return std::nullopt;
  name += tokens_[at_++].text;
  if (braced && !take("}")) return std::nullopt;
  for (size_t count = 0; count < kMaxHeadTokens; ++count) {
    if (take("'")) {
      name += '\'';
    } else if (is("_") || is("^")) {
      name += tokens_[at_++].text;
      int braces = 0;
      do {
        braces += is("{") ? 1 : is("}") ? -1 : 0;
        if (at_end() || count++ > kMaxHeadTokens) return std::nullopt;
        if (!is("{") && !is("}")) name += peek().text;
        ++at_;
      } while (braces > 0);
    } else {
      return name;
    }
  }
  return std::nullopt;
}

// The parameters of a definition: "(x, y)", "(g(x))". Names only: a number or a sum in brackets is
// a factor. Empty if there are none.
std::vector<Ref> Parser::head_parameters() {
  if (!take("(")) return {};
  std::vector<Ref> parameters;
  std::string text;
  int depth = 1;
  for (size_t count = 0; count < kMaxHeadTokens; ++count, ++at_) {
    if (is("(")) ++depth;
    if (is(")")) --depth;
    if ((is(",") && depth == 1) || depth == 0) {
      if (text.empty()) return {};
      parameters.push_back(make_symbol(text));
      text.clear();
      if (depth > 0) continue;
      ++at_;
      return parameters;
    }
    const bool name = peek().kind == Token::kName && !is_constant_letter(peek());
    const bool index = peek().kind == Token::kNumber && at_ > 0 && tokens_[at_ - 1].text == "_";
    if (!name && !index && !is("(") && !is(")") && !is("_")) return {};
    text += peek().text;
  }
  return {};
}

// Whether the name is called again: T(n) = 2 T(n - 1) does not define a value.
bool Parser::is_called_later(const std::string& name) const {
  for (size_t k = at_; k + 1 < tokens_.size(); ++k) {
    if (tokens_[k].kind == Token::kName && tokens_[k].text == name && tokens_[k + 1].text == "(") {
      return true;
    }
  }
  return false;
}

}  // namespace slimexx::reward::latex
