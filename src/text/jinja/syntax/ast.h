// The parsed template: plain nodes owned by one Program, immutable after parsing. The parser
// resolves names to slots by the rules of jinja2's own compiler.
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
  kNamespaceRef,  // ns.name as an assignment target
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
  kFilter,  // args[0] is the input; in a filter block it is null and the input is the block's text
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

// Location of a variable: `hops` functions outwards, then `slot`.
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
  int string_index = -1;  // index in Program::strings, for constants and attribute names
  Int integer = 0;
  double real = 0;
  std::string name;  // of a variable, attribute, filter or test
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

// Initial value of a slot when its scope is entered.
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

// A piece of code with its own activation: the template, a macro, the body of a call block, a
// recursive loop.
struct Function {
  std::string name;
  int level = 0;
  int slot_count = 0;
  bool captured = false;  // functions are defined inside it
  std::vector<Parameter> parameters;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // -1: the body does not use it
  ScopeEntry entry;
  Block body;
  int line = 0;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  int depth = 1;
  std::string text;
  Expr* target = nullptr;  // of for and set
  Expr* value = nullptr;   // the expression that is iterated, assigned, called, filtered or printed
  Expr* test = nullptr;    // the test of a for
  Block body, else_body;
  std::vector<std::pair<Expr*, Block>> branches;  // for if: a null test means else
  std::vector<std::pair<Expr*, Expr*>> bindings;  // for with
  bool recursive = false;
  SlotRef loop_ref;  // slot < 0: the body does not read `loop`
  SlotRef name_ref;  // the macro's variable
  ScopeEntry entry, else_entry, test_entry;
  Expr* test_target = nullptr;         // the loop's target, with slots in the scope of the test
  std::unique_ptr<Function> function;  // macro, call block, recursive loop
};

struct Program {
  std::string where;
  Function root;
  std::vector<std::string> strings;
  std::vector<std::unique_ptr<Expr>> expressions;
  std::vector<std::unique_ptr<Stmt>> statements;
};

// Nesting of statements and expressions that the parser accepts; bounds the recursion of the passes
// over the tree.
inline constexpr int kMaxTreeDepth = 200;

// Throws Error(kInput) with `where` and the line number.
[[noreturn]] void fail_syntax(const std::string& where, int line, const std::string& message);

// Gives every name its slot; refuses unknown filters and tests.
void resolve_names(Program& program);

std::unique_ptr<Program> parse_program(std::string_view source, const std::string& where);

}  // namespace slimexx::text::jinja
