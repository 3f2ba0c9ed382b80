// Resolves names to slots by the rules of jinja2's compiler: every for, macro, call, set, filter,
// with and generation block opens a scope; `if` does not. The first pass over a scope finds all
// names it reads and writes. Then it decides the initial value of each of the scope's own slots:
// empty, a copy of an outer variable (the scope writes a name that exists outside), or a variable
// of the rendering.
#include <map>
#include <optional>
#include <set>

#include "text/jinja/builtins.h"
#include "text/jinja/syntax/ast.h"

namespace slimexx::text::jinja {
namespace {

struct Place {
  const Function* function;
  int slot;
};

// The names of one scope. Each branch of an `if` gets a layer over its scope, which sees everything
// below it; later the layers are merged into the scope.
class Symbols {
 public:
  Symbols(Function& function, Symbols* parent) : function_(function), parent_(parent) {}
  explicit Symbols(Symbols* base)
      : function_(base->function_), parent_(base->parent_), base_(base) {}

  Function& function() const { return function_; }

  std::optional<Place> find(const std::string& name) const {
    for (const Symbols* layer = this; layer != nullptr; layer = layer->base_) {
      if (const auto it = layer->refs_.find(name); it != layer->refs_.end())
        return Place{&function_, it->second};
    }
    return parent_ != nullptr ? parent_->find(name) : std::nullopt;
  }

  int declare_parameter(const std::string& name) {
    stores_.insert(name);
    const int slot = define(name);
    loads_.erase(slot);
    return slot;
  }

  void store(const std::string& name) {
    stores_.insert(name);
    for (const Symbols* layer = this; layer != nullptr; layer = layer->base_) {
      if (layer->refs_.count(name) > 0) return;
    }
    const int slot = define(name);
    const auto outer = parent_ != nullptr ? parent_->find(name) : std::nullopt;
    loads_[slot] = outer ? alias(slot, *outer) : SlotLoad{SlotLoad::Source::kMissing, slot, {}, ""};
  }

  void load(const std::string& name) {
    if (find(name)) return;
    const int slot = define(name);
    loads_[slot] = {SlotLoad::Source::kContext, slot, {}, name};
  }

  // A branch may not run, so a slot that it writes begins with the outer value.
  void merge(const std::vector<const Symbols*>& branches) {
    std::set<std::string> written;
    for (const Symbols* branch : branches) {
      for (const auto& name : branch->stores_) {
        if (!stored(name)) written.insert(name);
      }
    }
    for (const Symbols* branch : branches) {
      refs_.insert(branch->refs_.begin(), branch->refs_.end());
      for (const auto& [slot, how] : branch->loads_) loads_[slot] = how;
    }
    for (const Symbols* branch : branches)
      stores_.insert(branch->stores_.begin(), branch->stores_.end());
    for (const auto& name : written) {
      const int slot = find(name)->slot;
      const auto outer = parent_ != nullptr ? parent_->find(name) : std::nullopt;
      loads_[slot] =
          outer ? alias(slot, *outer) : SlotLoad{SlotLoad::Source::kContext, slot, {}, name};
    }
  }

  ScopeEntry entry() const {
    ScopeEntry out;
    for (const auto& [slot, how] : loads_) out.push_back(how);
    return out;
  }
  SlotRef reference(const Place& place) const {
    return {function_.level - place.function->level, place.slot};
  }

 private:
  bool stored(const std::string& name) const {
    for (const Symbols* layer = this; layer != nullptr; layer = layer->base_) {
      if (layer->stores_.count(name) > 0) return true;
    }
    return false;
  }
  SlotLoad alias(int slot, const Place& outer) const {
    return {SlotLoad::Source::kOuter, slot, reference(outer), ""};
  }
  // A name has one slot per scope, whichever branch uses it first.
  int define(const std::string& name) {
    Symbols* bottom = this;
    while (bottom->base_ != nullptr) bottom = bottom->base_;
    const auto [it, fresh] = bottom->slots_.emplace(name, function_.slot_count);
    if (fresh) ++function_.slot_count;
    refs_[name] = it->second;
    return it->second;
  }

  Function& function_;
  Symbols* parent_;
  Symbols* base_ = nullptr;
  std::map<std::string, int> refs_, slots_;
  std::map<int, SlotLoad> loads_;
  std::set<std::string> stores_;
};

template <class Visit>
void for_each_child(const Expr& expr, Visit visit) {
  for (Expr* arg : expr.args) {
    if (arg != nullptr) visit(arg);
  }
  for (const auto& keyword : expr.keywords) visit(keyword.second);
  if (expr.star_args != nullptr) visit(expr.star_args);
  if (expr.star_keywords != nullptr) visit(expr.star_keywords);
}

bool mentions(const Expr* expr, std::string_view name) {
  if (expr == nullptr) return false;
  if (expr->kind == ExprKind::kName && expr->name == name) return true;
  bool found = false;
  for_each_child(*expr, [&](const Expr* child) { found = found || mentions(child, name); });
  return found;
}

bool mentions(const Block& block, std::string_view name) {
  for (const Stmt* stmt : block) {
    if (mentions(stmt->value, name) || mentions(stmt->test, name)) return true;
    if (mentions(stmt->body, name) || mentions(stmt->else_body, name)) return true;
    for (const auto& [test, body] : stmt->branches) {
      if (mentions(test, name) || mentions(body, name)) return true;
    }
    for (const auto& binding : stmt->bindings) {
      if (mentions(binding.second, name)) return true;
    }
    if (stmt->function == nullptr) continue;
    if (mentions(stmt->function->body, name)) return true;
    for (const Parameter& parameter : stmt->function->parameters) {
      if (mentions(parameter.default_value, name)) return true;
    }
  }
  return false;
}

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program) {}

  void run() {
    Symbols symbols(program_.root, nullptr);
    analyze(program_.root.body, symbols);
    program_.root.entry = symbols.entry();
    resolve(program_.root.body, symbols);
  }

 private:
  // First pass over a scope: collects the names that it reads and writes, without inner scopes.
  void analyze(const Expr* expr, Symbols& symbols) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceRef)
      symbols.load(expr->name);
    for_each_child(*expr, [&](const Expr* child) { analyze(child, symbols); });
  }

  void analyze_target(const Expr* target, Symbols& symbols, bool parameter) {
    if (target->kind == ExprKind::kTuple) {
      for (const Expr* item : target->args) analyze_target(item, symbols, parameter);
    } else if (target->kind == ExprKind::kNamespaceRef) {
      symbols.load(target->name);
    } else if (parameter) {
      symbols.declare_parameter(target->name);
    } else {
      symbols.store(target->name);
    }
  }

  void analyze_if(const Stmt& stmt, Symbols& symbols) {
    Symbols first(&symbols), others(&symbols), last(&symbols);
    for (size_t i = 0; i < stmt.branches.size(); ++i) {
      const auto& [test, body] = stmt.branches[i];
      if (i == 0) {
        analyze(test, symbols);
        analyze(body, first);
      } else if (test != nullptr) {
        analyze(test, others);
        Symbols inner(&others);
        analyze(body, inner);
        others.merge({&inner});
      } else {
        analyze(body, last);
      }
    }
    symbols.merge({&first, &others, &last});
  }

  void analyze(const Block& block, Symbols& symbols) {
    for (const Stmt* stmt : block) {
      switch (stmt->kind) {
        case StmtKind::kIf:
          analyze_if(*stmt, symbols);
          break;
        case StmtKind::kSet:
          analyze(stmt->value, symbols);
          analyze_target(stmt->target, symbols, false);
          break;
        case StmtKind::kSetBlock:
          analyze_target(stmt->target, symbols, false);
          break;
        case StmtKind::kMacro:
          symbols.store(stmt->function->name);
          break;
        case StmtKind::kWith:
          for (const auto& binding : stmt->bindings) analyze(binding.second, symbols);
          break;
        default:  // the iterated, called, filtered or printed expression
          analyze(stmt->value, symbols);
          break;
      }
    }
  }

  // Second pass: writes the slots into the tree and opens the inner scopes.
  void resolve(Expr* expr, Symbols& symbols) {
    if (expr == nullptr) return;
    switch (expr->kind) {
      case ExprKind::kName:
      case ExprKind::kNamespaceRef:
        expr->ref = symbols.reference(*symbols.find(expr->name));
        break;
      case ExprKind::kFilter:
        expr->filter = find_filter(expr->name);
        if (expr->filter == nullptr && !soft_)
          fail_at(expr->line, fmt::format("no filter named '{}'", expr->name));
        break;
      case ExprKind::kTest:
        expr->test = find_test(expr->name);
        if (expr->test == nullptr && !soft_)
          fail_at(expr->line, fmt::format("no test named '{}'", expr->name));
        break;
      default:
        break;
    }
    const bool outer = soft_;
    if (expr->kind == ExprKind::kConditional) soft_ = true;
    for_each_child(*expr, [&](Expr* child) { resolve(child, symbols); });
    soft_ = outer;
  }

  void resolve_target(Expr* target, Symbols& symbols) {
    if (target->kind != ExprKind::kTuple && target->name == "loop" && loops_ > 0 &&
        target->kind == ExprKind::kName) {
      fail_at(target->line, "cannot assign to the special variable 'loop' inside a for loop");
    }
    if (target->kind == ExprKind::kTuple) {
      for (Expr* item : target->args) resolve_target(item, symbols);
    } else {
      resolve(target, symbols);
    }
  }

  void resolve_if(Stmt& stmt, Symbols& symbols) {
    const bool outer = soft_;
    soft_ = true;
    for (auto& [test, body] : stmt.branches) {
      resolve(test, symbols);
      resolve(body, symbols);
    }
    soft_ = outer;
  }

  // Resolves a scope inside the same function: analyses `body`, then resolves it.
  void resolve_scope(Stmt& stmt, Symbols& symbols) {
    stmt.entry = symbols.entry();
    const bool outer = soft_;
    soft_ = false;
    resolve(stmt.body, symbols);
    soft_ = outer;
  }

  Function& open_function(Stmt& stmt, Symbols& outer) {
    stmt.function->level = outer.function().level + 1;
    outer.function().captured = true;
    return *stmt.function;
  }

  void resolve_for(Stmt& stmt, Symbols& outer) {
    resolve(stmt.value, outer);
    if (stmt.recursive) {
      stmt.function = std::make_unique<Function>();
      stmt.function->name = "loop";
    }
    Function& function = stmt.recursive ? open_function(stmt, outer) : outer.function();
    ++loops_;
    if (stmt.test != nullptr) resolve_for_test(stmt, function, outer);
    Symbols body(function, &outer);
    if (stmt.recursive || mentions(stmt.body, "loop"))
      stmt.loop_ref = {0, body.declare_parameter("loop")};
    analyze_target(stmt.target, body, true);
    analyze(stmt.body, body);
    resolve_target(stmt.target, body);
    resolve_scope(stmt, body);
    Symbols otherwise(function, &outer);
    analyze(stmt.else_body, otherwise);
    stmt.else_entry = otherwise.entry();
    resolve(stmt.else_body, otherwise);
    --loops_;
  }

  // The test has its own variables, since it may run ahead of the body (loop.last, loop.nextitem).
  void resolve_for_test(Stmt& stmt, Function& function, Symbols& outer) {
    Symbols symbols(function, &outer);
    analyze_target(stmt.target, symbols, true);
    analyze(stmt.test, symbols);
    stmt.test_target = clone_target(*stmt.target);
    resolve_target(stmt.test_target, symbols);
    resolve(stmt.test, symbols);
    stmt.test_entry = symbols.entry();
  }

  Expr* clone_target(const Expr& target) {
    program_.expressions.push_back(std::make_unique<Expr>(target));
    Expr* copy = program_.expressions.back().get();
    for (Expr*& item : copy->args) item = clone_target(*item);
    return copy;
  }

  void resolve_function(Stmt& stmt, Symbols& outer) {
    Function& function = open_function(stmt, outer);
    Symbols symbols(function, &outer);
    const bool has_caller = declare_parameters(function, symbols);
    const auto special = [&](const char* name, bool declared) {
      return !declared && mentions(function.body, name) ? symbols.declare_parameter(name) : -1;
    };
    const auto declared = [&](const char* name) {
      for (const Parameter& parameter : function.parameters) {
        if (parameter.name == name) return true;
      }
      return false;
    };
    function.caller_slot = special("caller", has_caller);
    function.kwargs_slot = special("kwargs", declared("kwargs"));
    function.varargs_slot = special("varargs", declared("varargs"));
    for (const Parameter& parameter : function.parameters)
      analyze(parameter.default_value, symbols);
    analyze(function.body, symbols);
    function.entry = symbols.entry();
    const int loops = loops_;
    const bool soft = soft_;
    soft_ = false;
    for (const Parameter& parameter : function.parameters)
      resolve(parameter.default_value, symbols);
    resolve(function.body, symbols);
    soft_ = soft;
    loops_ = loops;
  }

  bool declare_parameters(Function& function, Symbols& symbols) {
    bool has_caller = false;
    for (Parameter& parameter : function.parameters) {
      parameter.slot = symbols.declare_parameter(parameter.name);
      if (parameter.name != "caller") continue;
      has_caller = true;
      if (parameter.default_value == nullptr && mentions(function.body, "caller")) {
        fail_at(function.line, "the special parameter 'caller' must be left out or have a default");
      }
    }
    return has_caller;
  }

  void resolve_with(Stmt& stmt, Symbols& outer) {
    Symbols symbols(outer.function(), &outer);
    for (auto& [target, value] : stmt.bindings) {
      resolve(value, outer);
      analyze_target(target, symbols, true);
    }
    analyze(stmt.body, symbols);
    for (auto& [target, value] : stmt.bindings) resolve_target(target, symbols);
    resolve_scope(stmt, symbols);
  }

  void resolve_block(Stmt& stmt, Symbols& outer) {
    Symbols symbols(outer.function(), &outer);
    if (stmt.kind != StmtKind::kGeneration) analyze(stmt.value, symbols);
    analyze(stmt.body, symbols);
    resolve(stmt.value, symbols);
    if (stmt.target != nullptr) resolve_target(stmt.target, outer);
    resolve_scope(stmt, symbols);
  }

  void resolve(Block& block, Symbols& symbols) {
    for (Stmt* stmt : block) {
      switch (stmt->kind) {
        case StmtKind::kIf:
          resolve_if(*stmt, symbols);
          break;
        case StmtKind::kFor:
          resolve_for(*stmt, symbols);
          break;
        case StmtKind::kMacro:
          stmt->name_ref = symbols.reference(*symbols.find(stmt->function->name));
          resolve_function(*stmt, symbols);
          break;
        case StmtKind::kCallBlock:
          resolve(stmt->value, symbols);
          resolve_function(*stmt, symbols);
          break;
        case StmtKind::kWith:
          resolve_with(*stmt, symbols);
          break;
        case StmtKind::kSetBlock:
        case StmtKind::kFilterBlock:
        case StmtKind::kGeneration:
          resolve_block(*stmt, symbols);
          break;
        case StmtKind::kSet:
          resolve(stmt->value, symbols);
          resolve_target(stmt->target, symbols);
          break;
        default:
          resolve(stmt->value, symbols);
          break;
      }
    }
  }

  [[noreturn]] void fail_at(int line, const std::string& message) {
    fail_syntax(program_.where, line, message);
  }

  Program& program_;
  bool soft_ = false;  // inside an if: unknown filters fail at run time, not at parse time
  int loops_ = 0;
};

}  // namespace

void resolve_names(Program& program) { Resolver(program).run(); }

}  // namespace slimexx::text::jinja
