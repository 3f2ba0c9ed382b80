// Parses tokens to an expression tree: answers are lists of relations, values, sets or words.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reward/latex/node.h"
#include "reward/latex/reading/lexer.h"

namespace slimexx::reward::latex {

// The tree of one answer; null, and `why` set, if the text is not mathematics that the parser can
// read.
Ref parse_answer(const std::vector<Token>& tokens, std::string* why);

struct ParseFailure {
  std::string why;
};

// Recursive descent; bounded by kMaxParseDepth and kMaxTokens. Members throw ParseFailure.
inline constexpr int kMaxParseDepth = 100;

class Parser {
 public:
  explicit Parser(const std::vector<Token>& tokens) : tokens_(tokens) {}
  Ref parse_all();

 private:
  struct Items {
    std::vector<Ref> items;
    std::string joint;  // ",", ";", "and", "or"; empty for a single item
  };

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool at_end() const { return peek().kind == Token::kEnd; }
  bool is(std::string_view symbol) const {
    return peek().kind == Token::kSymbol && peek().text == symbol;
  }
  bool is_command(std::string_view name) const {
    return peek().kind == Token::kCommand && peek().text == name;
  }
  bool take(std::string_view symbol);
  void expect(std::string_view symbol);
  [[noreturn]] static void fail(std::string why) { throw ParseFailure{std::move(why)}; }

  // parser.cpp
  Items parse_items();
  Ref join_items(Items items);
  static bool ends_item(const Token& token);
  bool at_item_end() const { return ends_item(peek()); }
  bool take_joint(std::string& joint);
  Ref parse_item();
  Ref parse_text();
  Ref parse_relation();
  Ref parse_side();  // of a relation
  bool at_bracketed_approximation() const;
  std::string take_relation_symbol();
  Ref parse_set_operations();
  Ref parse_ratio();
  Ref parse_infix();
  Ref parse_sum();
  Ref parse_signed_term();
  Ref parse_term();
  bool starts_factor() const;

  // parse_unit.cpp
  Ref with_unit(Ref value);
  Ref with_early_unit(Ref side);
  std::optional<std::string> scan_unit(size_t& at, size_t limit) const;
  std::string take_unit();
  bool at_unit() const;  // with letters that may be variables: \text{m}, \frac{\rm m}{\rm s}
  Ref take_magnitudes(Ref value);

  // parse_head.cpp
  Ref parse_head();  // "p(x)" in "p(x) = ..."; null, with nothing read, if no definition begins
  Ref parse_plain_derivative();
  std::optional<std::string> head_name();
  std::vector<Ref> head_parameters();
  bool is_called_later(const std::string& name) const;

  // parse_factor.cpp
  Ref parse_factor();
  Ref parse_postfix(Ref base);
  bool take_degree_exponent(const Ref& base);
  Ref parse_exponent();
  Ref parse_argument();     // of \frac, ^, \sqrt: a group or one token
  Ref parse_group_value();  // {...} as one value
  Ref parse_primary();
  Ref parse_prescript();
  Ref parse_number();
  Ref parse_mixed_number(const Ref& whole);
  Ref parse_name();
  Ref with_subscript(const std::string& name);
  std::optional<std::string> simple_subscript();
  Ref parse_brackets();
  Ref parse_set();
  Ref parse_between(std::string_view close, const char* function);

  // parse_function.cpp
  Ref parse_command();
  Ref parse_function(const std::string& name);
  std::vector<Ref> parse_function_arguments();
  Ref parse_root();
  Ref parse_big_operator(const std::string& name);
  Ref parse_environment(const std::string& kind);
  Ref parse_mathbb();

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int bars_ = 0;         // number of open |
  bool in_set_ = false;  // directly inside \{ \}: a bar there is "such that"
};

}  // namespace slimexx::reward::latex
