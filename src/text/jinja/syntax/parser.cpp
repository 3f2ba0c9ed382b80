#include "text/jinja/syntax/parser.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "slimexx/base/error.h"

namespace slimexx::text::jinja {

void fail_syntax(const std::string& where, int line, const std::string& message) {
  throw Error(ErrorCode::kInput, message,
              "fix the template there; it must be Jinja as in chat templates of transformers",
              fmt::format("{}: line {}", where, line));
}

std::unique_ptr<Program> parse_program(std::string_view source, const std::string& where) {
  auto program = Parser(source, where).run();
  resolve_names(*program);
  return program;
}

Parser::Parser(std::string_view source, const std::string& where)
    : program_(std::make_unique<Program>()) {
  program_->where = where;
  tokens_ = lex_template(source, where);
}

std::unique_ptr<Program> Parser::run() {
  program_->root.name = "template";
  program_->root.body = parse_block({});
  return std::move(program_);
}

bool Parser::at_operator(std::string_view op) const {
  return current().kind == TokenKind::kOperator && current().text == op;
}
bool Parser::at_name(std::string_view name) const {
  return current().kind == TokenKind::kName && current().text == name;
}
bool Parser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}
bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}
void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_here(fmt::format("expected '{}', got {}", op, describe_current()));
}
void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here(fmt::format("expected '{}', got {}", name, describe_current()));
}
std::string Parser::expect_identifier() {
  if (current().kind != TokenKind::kName)
    fail_here(fmt::format("expected a name, got {}", describe_current()));
  return take().text;
}
void Parser::expect(TokenKind kind, const char* what) {
  if (current().kind != kind)
    fail_here(fmt::format("expected {}, got {}", what, describe_current()));
  take();
}
void Parser::fail_here(const std::string& message) const {
  fail_syntax(program_->where, current().line, message);
}

std::string Parser::describe_current() const {
  switch (current().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kFloat:
      return "a number";
    default:
      return fmt::format("'{}'", current().text.substr(0, 60));
  }
}

Expr* Parser::make(ExprKind kind, int line, std::vector<Expr*> args) {
  auto& slot = program_->expressions.emplace_back(std::make_unique<Expr>());
  slot->kind = kind;
  slot->line = line;
  slot->args = std::move(args);
  return finish(slot.get());
}

Expr* Parser::make_binary(Op op, int line, Expr* left, Expr* right) {
  Expr* expr = make(ExprKind::kBinary, line, {left, right});
  expr->op = op;
  return expr;
}

Expr* Parser::finish(Expr* expr) const {
  const auto cover = [&](const Expr* child) {
    if (child != nullptr) expr->depth = std::max(expr->depth, child->depth + 1);
  };
  for (const Expr* arg : expr->args) cover(arg);
  for (const auto& keyword : expr->keywords) cover(keyword.second);
  cover(expr->star_args);
  cover(expr->star_keywords);
  if (expr->depth > kMaxTreeDepth) fail_here("an expression is nested too deeply");
  return expr;
}

Stmt* Parser::make(StmtKind kind, int line) {
  auto& slot = program_->statements.emplace_back(std::make_unique<Stmt>());
  slot->kind = kind;
  slot->line = line;
  return slot.get();
}

int Parser::intern(std::string text) {
  program_->strings.push_back(std::move(text));
  return static_cast<int>(program_->strings.size()) - 1;
}

// Parses text, outputs and statements up to a tag named in `end`, which becomes the current token;
// if `end` is empty, up to the end of the template.
Block Parser::parse_block(Words end) {
  const Nested nested(*this);
  Block block;
  while (true) {
    const int line = current().line;
    switch (current().kind) {
      case TokenKind::kText:
        block.push_back(make(StmtKind::kText, line));
        block.back()->text = take().text;
        break;
      case TokenKind::kVariableBegin: {
        take();
        Stmt* output = make(StmtKind::kOutput, line);
        output->value = parse_tuple({});
        expect(TokenKind::kVariableEnd, "'}}'");
        block.push_back(output);
        break;
      }
      case TokenKind::kBlockBegin:
        take();
        if (current().kind != TokenKind::kName) fail_here("expected the name of a tag");
        if (std::find(end.begin(), end.end(), current().text) != end.end()) return block;
        block.push_back(parse_statement());
        expect(TokenKind::kBlockEnd, "'%}'");
        break;
      default:
        if (end.size() > 0)
          fail_here(fmt::format("the template ends, but {{% {} %}} is missing", *(end.end() - 1)));
        return block;
    }
  }
}

Block Parser::parse_body(Words end) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  return parse_block(end);
}

Stmt* Parser::parse_statement() {
  using Parse = Stmt* (Parser::*)();
  static const std::map<std::string_view, Parse> kStatements = {
      {"for", &Parser::parse_for},     {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},     {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call},   {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},   {"generation", &Parser::parse_generation},
      {"print", &Parser::parse_print},
  };
  const std::string& name = current().text;
  if (const auto it = kStatements.find(name); it != kStatements.end()) return (this->*it->second)();
  if (name == "break") return parse_jump(StmtKind::kBreak);
  if (name == "continue") return parse_jump(StmtKind::kContinue);
  for (const std::string_view other :
       {"include", "import", "from", "extends", "block", "autoescape"}) {
    if (name == other) {
      fail_here(fmt::format(
          "{{% {} %}} is not available: a chat template cannot load other templates", name));
    }
  }
  fail_here(fmt::format("unknown tag '{}'", name));
}

Expr* Parser::parse_target(bool with_namespace, bool in_for) {
  TupleRules rules;
  rules.simplified = true;
  rules.with_namespace = with_namespace;
  rules.in_ends = in_for;
  Expr* target = parse_tuple(rules);
  const auto assignable = [&](const auto& self, const Expr* expr) -> bool {
    if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceRef) return true;
    if (expr->kind != ExprKind::kTuple) return false;
    return std::all_of(expr->args.begin(), expr->args.end(),
                       [&](const Expr* e) { return self(self, e); });
  };
  if (!assignable(assignable, target)) fail_here("cannot assign to this expression");
  return target;
}

void Parser::parse_loop_body(Stmt& loop) {
  if (!loop.recursive) {
    ++loops_;
    loop.body = parse_body({"else", "endfor"});
    --loops_;
    return;
  }
  const int outer = loops_;
  loops_ = 1;
  loop.body = parse_body({"else", "endfor"});
  loops_ = outer;
}

Stmt* Parser::parse_for() {
  Stmt* loop = make(StmtKind::kFor, take().line);
  loop->target = parse_target(false, true);
  expect_name("in");
  TupleRules rules;
  rules.conditional = false;
  rules.recursive_ends = true;
  loop->value = parse_tuple(rules);
  if (skip_name("if")) loop->test = parse_expression();
  loop->recursive = skip_name("recursive");
  parse_loop_body(*loop);
  if (take().text == "endfor") return loop;
  const int outer = loops_;
  if (loop->recursive) loops_ = 0;
  loop->else_body = parse_body({"endfor"});
  loops_ = outer;
  take();
  return loop;
}

Stmt* Parser::parse_if() {
  Stmt* stmt = make(StmtKind::kIf, take().line);
  TupleRules rules;
  rules.conditional = false;
  while (true) {
    Expr* test = parse_tuple(rules);
    stmt->branches.emplace_back(test, parse_body({"elif", "else", "endif"}));
    const std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") {
      stmt->branches.emplace_back(nullptr, parse_body({"endif"}));
      take();
    }
    return stmt;
  }
}

Stmt* Parser::parse_set() {
  const int line = take().line;
  Expr* target = parse_target(true, false);
  if (skip_operator("=")) {
    Stmt* stmt = make(StmtKind::kSet, line);
    stmt->target = target;
    stmt->value = parse_tuple({});
    return stmt;
  }
  Stmt* stmt = make(StmtKind::kSetBlock, line);
  stmt->target = target;
  stmt->value = parse_filter_chain(nullptr);
  stmt->body = parse_body({"endset"});
  take();
  return stmt;
}

void Parser::parse_signature(Function& function) {
  expect_operator("(");
  std::unordered_set<std::string> names;
  while (!at_operator(")")) {
    if (!function.parameters.empty()) expect_operator(",");
    Parameter parameter;
    parameter.name = expect_identifier();
    if (skip_operator("=")) {
      parameter.default_value = parse_expression();
    } else if (!function.parameters.empty() &&
               function.parameters.back().default_value != nullptr) {
      fail_here("a parameter without default follows one with a default");
    }
    if (!names.insert(parameter.name).second)
      fail_here(fmt::format("two parameters are named '{}'", shorten(parameter.name)));
    function.parameters.push_back(std::move(parameter));
  }
  take();
}

void Parser::parse_function_body(Stmt& stmt, std::string_view end) {
  const int outer = loops_;
  loops_ = 0;
  stmt.function->line = stmt.line;
  stmt.function->body = parse_body({end});
  loops_ = outer;
  take();
}

Stmt* Parser::parse_macro() {
  Stmt* stmt = make(StmtKind::kMacro, take().line);
  stmt->function = std::make_unique<Function>();
  stmt->function->name = expect_identifier();
  parse_signature(*stmt->function);
  parse_function_body(*stmt, "endmacro");
  return stmt;
}

Stmt* Parser::parse_call() {
  Stmt* stmt = make(StmtKind::kCallBlock, take().line);
  stmt->function = std::make_unique<Function>();
  stmt->function->name = "caller";
  if (at_operator("(")) parse_signature(*stmt->function);
  stmt->value = parse_expression();
  if (stmt->value->kind != ExprKind::kCall) fail_here("expected a call");
  parse_function_body(*stmt, "endcall");
  return stmt;
}

Stmt* Parser::parse_filter_block() {
  Stmt* stmt = make(StmtKind::kFilterBlock, take().line);
  stmt->value = parse_filter_chain(parse_filter(nullptr));
  stmt->body = parse_body({"endfilter"});
  take();
  return stmt;
}

Stmt* Parser::parse_with() {
  Stmt* stmt = make(StmtKind::kWith, take().line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->bindings.empty()) expect_operator(",");
    Expr* target = parse_target(false, false);
    expect_operator("=");
    stmt->bindings.emplace_back(target, parse_expression());
  }
  stmt->body = parse_body({"endwith"});
  take();
  return stmt;
}

Stmt* Parser::parse_generation() {
  Stmt* stmt = make(StmtKind::kGeneration, take().line);
  const int outer = loops_;
  loops_ = 0;
  stmt->body = parse_body({"endgeneration"});
  loops_ = outer;
  take();
  return stmt;
}

Stmt* Parser::parse_print() {
  Stmt* stmt = make(StmtKind::kOutput, take().line);
  stmt->value = make(ExprKind::kConcat, stmt->line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->value->args.empty()) expect_operator(",");
    stmt->value->args.push_back(parse_expression());
  }
  finish(stmt->value);
  return stmt;
}

Stmt* Parser::parse_jump(StmtKind kind) {
  if (loops_ == 0) fail_here(fmt::format("'{}' outside of a loop", current().text));
  return make(kind, take().line);
}

}  // namespace slimexx::text::jinja
