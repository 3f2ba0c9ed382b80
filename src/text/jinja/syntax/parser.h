// Recursive descent over the tokens, by the grammar of jinja2's parser. Private to the two parser
// sources.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax/ast.h"
#include "text/jinja/syntax/lexer.h"

namespace slimexx::text::jinja {

class Parser {
 public:
  Parser(std::string_view source, const std::string& where);
  std::unique_ptr<Program> run();

 private:
  using Words = std::initializer_list<std::string_view>;

  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_]; }
  bool at_operator(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  void expect(TokenKind kind, const char* what);
  [[noreturn]] void fail_here(const std::string& message) const;
  std::string describe_current() const;

  Expr* make(ExprKind kind, int line, std::vector<Expr*> args = {});
  Expr* make_binary(Op op, int line, Expr* left, Expr* right);
  Expr* finish(Expr* expr) const;  // computes the depth, and refuses a tree that is too deep
  Stmt* make(StmtKind kind, int line);
  int intern(std::string text);
  struct Nested;  // counts the depth of recursion

  // Statements (parser.cpp).
  Block parse_block(Words end);
  Stmt* parse_statement();
  Block parse_body(Words end);
  void parse_loop_body(Stmt& loop);
  Stmt* parse_for();
  Stmt* parse_if();
  Stmt* parse_set();
  Stmt* parse_macro();
  Stmt* parse_call();
  Stmt* parse_filter_block();
  Stmt* parse_with();
  Stmt* parse_generation();
  Stmt* parse_print();
  Stmt* parse_jump(StmtKind kind);
  void parse_function_body(Stmt& stmt, std::string_view end);
  void parse_signature(Function& function);
  Expr* parse_target(bool with_namespace, bool in_for);

  // Expressions (parser_expression.cpp).
  struct TupleRules {
    bool simplified = false;  // names and literals only: assignment targets
    bool conditional = true;  // x if y else z
    bool in_ends = false, recursive_ends = false, parenthesized = false, with_namespace = false;
  };
  bool at_tuple_end(const TupleRules& rules) const;
  Expr* parse_tuple(const TupleRules& rules);
  Expr* parse_expression();
  Expr* parse_or();
  Expr* parse_and();
  Expr* parse_not();
  Expr* parse_compare();
  bool take_comparison(Op& op);
  Expr* parse_sum();
  Expr* parse_concat();
  Expr* parse_product();
  Expr* parse_power();
  Expr* parse_unary(bool with_filter);
  Expr* parse_primary(bool with_namespace);
  Expr* parse_name(bool with_namespace);
  Expr* parse_string();
  Expr* parse_list();
  Expr* parse_dict();
  Expr* parse_postfix(Expr* node);
  Expr* parse_filters_and_tests(Expr* node);
  Expr* parse_attribute(Expr* node);
  Expr* parse_item(Expr* node);
  Expr* parse_subscript();
  Expr* parse_call_expression(Expr* callee);
  void parse_arguments(Expr& call);
  Expr* parse_filter(Expr* input);  // after the bar
  Expr* parse_filter_chain(Expr* input);
  Expr* parse_test(Expr* node);
  std::string parse_dotted_name();

  std::unique_ptr<Program> program_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // open loops in the current function
};

struct Parser::Nested {
  explicit Nested(Parser& owner) : parser(owner) {
    if (++parser.nesting_ > kMaxTreeDepth) parser.fail_here("the template is nested too deeply");
  }
  ~Nested() { --parser.nesting_; }
  Parser& parser;
};

}  // namespace slimexx::text::jinja
