#include "text/jinja/interpreter.h"

namespace slimexx::text::jinja {
namespace {

// Clears the loop's variables on any exit: they refer to the loop, a reference cycle.
struct LoopEnd {
  LoopObject& loop;
  ~LoopEnd() { loop.clear(); }
};

}  // namespace

Interpreter::Flow Interpreter::run(const Block& block) {
  for (const Stmt* stmt : block) {
    const Flow flow = run(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
  const Nested nested(*this);
  charge(1);
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      write(stmt.text);
      break;
    case StmtKind::kOutput:
      write(evaluate(*stmt.value));
      break;
    case StmtKind::kFor:
      return run_for(stmt);
    case StmtKind::kIf:
      return run_if(stmt);
    case StmtKind::kSet:
      assign(*stmt.target, evaluate(*stmt.value));
      break;
    case StmtKind::kSetBlock:
      run_set_block(stmt);
      break;
    case StmtKind::kMacro:
      slot(stmt.name_ref) = make_macro(stmt);
      break;
    case StmtKind::kCallBlock:
      run_call_block(stmt);
      break;
    case StmtKind::kFilterBlock:
      run_filter_block(stmt);
      break;
    case StmtKind::kWith:
      run_with(stmt);
      return run(stmt.body);
    case StmtKind::kGeneration:
      run_generation(stmt);
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
  for (const auto& [test, body] : stmt.branches) {
    if (test == nullptr || is_true(evaluate(*test))) return run(body);
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_for(const Stmt& stmt) {
  Values items = list_of(evaluate(*stmt.value));
  if (!stmt.recursive) return run_loop(stmt, std::move(items), 0);
  write(run_recursive(stmt, std::move(items), 0, current_));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, Values items, int64_t depth0) {
  Value value(Kind::kLoop, heap_.make<LoopObject>(std::move(items), stmt));
  auto& loop = value.get<LoopObject>();
  const LoopEnd end{loop};
  loop.closure = current_;
  loop.depth0 = depth0;
  // As in jinja2, the else block runs unless one iteration reached the end of the body; iterations
  // that break or continue do not count.
  bool completed = false;
  while (true) {
    Value item = pull(loop);
    if (item.is(Kind::kMissing)) break;
    charge(1);
    loop.before = std::move(loop.current);
    loop.current = std::move(item);
    ++loop.index0;
    assign(*stmt.target, loop.current);
    if (stmt.loop_ref.slot >= 0) slot(stmt.loop_ref) = value;
    enter_scope(stmt.entry);
    const Flow flow = run(stmt.body);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  if (completed || stmt.else_body.empty()) return Flow::kNext;
  enter_scope(stmt.else_entry);
  return run(stmt.else_body);
}

Value Interpreter::run_recursive(const Stmt& stmt, Values items, int64_t depth0,
                                 const Value& closure) {
  const Level level(*this);
  const Switch inside(*this, make_activation(*stmt.function, closure));
  Buffer buffer(*this);
  run_loop(stmt, std::move(items), depth0);
  return buffer.take();
}

void Interpreter::run_set_block(const Stmt& stmt) {
  Value text;
  {
    Buffer buffer(*this);
    enter_scope(stmt.entry);
    run(stmt.body);
    text = buffer.take();
  }
  assign(*stmt.target, stmt.value == nullptr ? text : evaluate_filter(*stmt.value, &text));
}

void Interpreter::run_filter_block(const Stmt& stmt) {
  Value text;
  {
    Buffer buffer(*this);
    enter_scope(stmt.entry);
    run(stmt.body);
    text = buffer.take();
  }
  write(evaluate_filter(*stmt.value, &text));
}

Value Interpreter::make_macro(const Stmt& stmt) {
  return {Kind::kMacro, heap_.make<MacroObject>(*stmt.function, current_)};
}

void Interpreter::run_call_block(const Stmt& stmt) {
  const Value caller = make_macro(stmt);
  write(evaluate_call(*stmt.value, &caller));
}

void Interpreter::run_with(const Stmt& stmt) {
  enter_scope(stmt.entry);
  for (const auto& [target, value] : stmt.bindings) assign(*target, evaluate(*value));
}

void Interpreter::run_generation(const Stmt& stmt) {
  enter_scope(stmt.entry);
  if (out_->generating) {  // the enclosing generation block covers this block
    run(stmt.body);
    return;
  }
  const auto begin = static_cast<int64_t>(out_->text.size());
  out_->generating = true;
  run(stmt.body);
  out_->generating = false;
  add_span(begin, static_cast<int64_t>(out_->text.size()));
}

}  // namespace slimexx::text::jinja
