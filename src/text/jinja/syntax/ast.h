// The parsed template: plain nodes owned by one Program, immutable after parsing, names resolved to
// slots at parse time by the rules of jinja2's own compiler.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace slimexx::text::jinja {

struct FilterEntry;
struct TestEntry;
struct Stmt;

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kNamespaceRef,  // assignment target ns.name
  kTuple,
  kList,
  kDict,  // args: key, value, key, value, ...
  kUnaryNot,
  kNegate,
  kPlus,
  kBinary,  // op
  kAnd,
  kOr,
  kConcat,
  kCompare,      // args[0] ops[0] args[1] ops[1] args[2] ...
  kConditional,  // args: test, then, else (may be null)
  kAttribute,
  kItem,
  kSlice,   // args: start, stop, step; each may be null
  kCall,    // args[0] is the callee
  kFilter,  // args[0] is the input; null in a block's filter: the block's text
  kTest,
};

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

// Where a variable lives: `hops` functions outwards, then `slot`.
struct SlotRef {
  int hops = 0;
  int slot = -1;
};

enum class ConstantKind : uint8_t { kNone, kBool, kInt, kFloat, kString };

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  ConstantKind constant = ConstantKind::kNone;
  Op op = Op::kAdd;
  int line = 0;
  int depth = 1;
  int string_index = -1;  // among Program::strings, for constants and attribute names
  Int integer = 0;
  double real = 0;
  std::string name;  // variable, attribute, filter, test
  SlotRef ref;
  std::vector<Expr*> args;
  std::vector<Op> ops;
  std::vector<std::pair<std::string, Expr*>> keywords;
  Expr* star_args = nullptr;
  Expr* star_keywords = nullptr;
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

enum class StmtKind : uint8_t {
  kText,
  kOutput,
  kFor,
  kIf,  // branches
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};

// How a slot of a scope begins when the scope is entered.
struct SlotLoad {
  enum class Source : uint8_t { kMissing, kOuter, kContext } source = Source::kMissing;
  int slot = -1;
  SlotRef outer;
  std::string name;
};
using ScopeEntry = std::vector<SlotLoad>;
using Block = std::vector<Stmt*>;

struct Parameter {
  std::string name;
  Expr* default_value = nullptr;
  int slot = -1;
};

// A function has an activation of its own: the template, a macro, the body of a call block, a
// recursive loop.
struct Function {
  std::string name;
  int level = 0;
  int slot_count = 0;
  bool captured = false;  // functions are made inside it
  std::vector<Parameter> parameters;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // -1: not used by the body
  ScopeEntry entry;
  Block body;
  int line = 0;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  int depth = 1;
  std::string text;
  Expr* target = nullptr;  // for, set
  Expr* value = nullptr;   // iterated, assigned, called, filtered, printed
  Expr* test = nullptr;    // for's filter
  Block body, else_body;
  std::vector<std::pair<Expr*, Block>> branches;  // if: a null test is else
  std::vector<std::pair<Expr*, Expr*>> bindings;  // with
  bool recursive = false;
  SlotRef loop_ref;  // slot < 0: the body does not read `loop`
  SlotRef name_ref;  // macro's variable
  ScopeEntry entry, else_entry, test_entry;
  Expr* test_target = nullptr;         // the loop's target with the slots of the test's scope
  std::unique_ptr<Function> function;  // macro, call block, recursive loop
};

struct Program {
  std::string where;
  Function root;
  std::vector<std::string> strings;
  std::vector<std::unique_ptr<Expr>> expressions;
  std::vector<std::unique_ptr<Stmt>> statements;
};

// Nested statements and expressions that the parser accepts; bounds the recursion of the passes
// over the tree.
inline constexpr int kMaxTreeDepth = 200;

// Throws Error(kInput) with `where` and the line.
[[noreturn]] void fail_syntax(const std::string& where, int line, const std::string& message);

// Gives every name its slot; refuses unknown filters and tests.
void resolve_names(Program& program);

std::unique_ptr<Program> parse_program(std::string_view source, const std::string& where);

}  // namespace slimexx::text::jinja
