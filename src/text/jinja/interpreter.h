// Evaluates the parsed template. An interpreter renders once, on one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/text/chat_template.h"
#include "text/jinja/builtins.h"
#include "text/jinja/syntax/ast.h"

namespace slimexx::text::jinja {

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateLimits& limits,
              const std::function<int64_t()>& clock);

  // `defaults` are variables that `variables` may override. Throws Error.
  RenderedText render(const Json& variables, const Json& defaults);

  Heap& heap() { return heap_; }
  int64_t now() const { return clock_(); }
  void charge(uint64_t work) { heap_.charge(work); }
  // list(value), charged.
  Values list_of(const Value& value);
  TextOf text_of(const Value& value);

  Value call(const Value& callee, Arguments arguments);
  Value get_attribute(const Value& object, std::string_view name, const Value* key);
  Value get_item(const Value& object, const Value& key);
  // Methods only, no items, as the attr filter requires.
  Value get_own_attribute(const Value& object, std::string_view name);
  Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);

  // Counts one level of calls: macros, filters called by filters, recursive loops.
  struct Level;

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Nested;
  struct Buffer;
  struct Switch;
  // The text being written: the output, or the buffer of a macro or block.
  struct Sink {
    std::string text;
    Spans spans;
    bool generating = false;     // inside a generation block of this sink
    uint64_t counted_bytes = 0;  // bytes that the heap counts as live
  };

  Value convert(const Json& json, int depth);
  Value constant_string(int index);
  void write(std::string_view text);
  void write(const Value& value);
  void add_span(int64_t begin, int64_t end);
  void count_written(uint64_t bytes);

  // Variables.
  Activation& activation(int hops) const;
  Value& slot(const SlotRef& ref) const;
  Value read(const Expr& name);
  Value lookup_variable(const std::string& name);
  void enter_scope(const ScopeEntry& entry);
  void assign(const Expr& target, const Value& value);

  // Expressions (interpreter_expression.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_kind(const Expr& expr);
  Value evaluate_constant(const Expr& expr);
  Values evaluate_all(const std::vector<Expr*>& exprs, size_t from = 0);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  bool compare(Op op, const Value& a, const Value& b);
  Value evaluate_item(const Expr& expr);
  Value evaluate_call(const Expr& expr, const Value* caller);
  Value evaluate_filter(const Expr& expr, const Value* block_text);
  Value evaluate_test(const Expr& expr);
  Arguments evaluate_arguments(const Expr& expr, size_t from);
  Value own_attribute(const Value& object, std::string_view name);

  // Statements (interpreter_statement.cpp).
  Flow run(const Block& block);
  Flow run(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  Flow run_for(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, Values items, int64_t depth0);
  Value run_recursive(const Stmt& stmt, Values items, int64_t depth0, const Value& closure);
  void run_set_block(const Stmt& stmt);
  void run_filter_block(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  void run_with(const Stmt& stmt);
  void run_generation(const Stmt& stmt);
  Value make_macro(const Stmt& stmt);
  Value make_activation(const Function& function, const Value& parent);

  // Calls and loops (interpreter_call.cpp).
  Value call_macro(const MacroObject& macro, Arguments arguments);
  void bind_macro(const MacroObject& macro, Arguments& arguments, Activation& target);
  void fill_defaults(const Function& function);
  Value call_loop(const Value& loop, const Arguments& arguments);
  Value loop_attribute(const Value& value, std::string_view name);
  Value macro_attribute(const MacroObject& macro, std::string_view name);
  Value pull(LoopObject& loop);  // the next item, or missing
  const Value& peek(LoopObject& loop);
  int64_t loop_length(LoopObject& loop);

  const Program& program_;
  const std::function<int64_t()>& clock_;
  int max_depth_;
  int line_ = 1;
  int calls_ = 0;
  int nesting_ = 0;
  Heap heap_;
  Value variables_;  // dict
  Values strings_;   // the program's strings, created on first use
  Value current_;    // kActivation
  Sink output_;
  Sink* out_ = &output_;
};

struct Interpreter::Level {
  explicit Level(Interpreter& owner) : interpreter(owner) {
    if (++interpreter.calls_ > interpreter.max_depth_) {
      --interpreter.calls_;
      fail(fmt::format("calls are nested deeper than {}", interpreter.max_depth_));
    }
  }
  ~Level() { --interpreter.calls_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  Interpreter& interpreter;
};

// Counts nested nodes over all calls, to bound the use of the C++ stack.
struct Interpreter::Nested {
  explicit Nested(Interpreter& owner) : interpreter(owner) {
    constexpr int kNodesPerCall = 12;
    if (++interpreter.nesting_ > kMaxTreeDepth + kNodesPerCall * interpreter.max_depth_) {
      --interpreter.nesting_;
      fail("expressions and calls are nested too deeply");
    }
  }
  ~Nested() { --interpreter.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  Interpreter& interpreter;
};

// Captures the text that is written during its lifetime.
struct Interpreter::Buffer {
  explicit Buffer(Interpreter& owner) : interpreter(owner), outer(owner.out_) {
    owner.out_ = &sink;
  }
  ~Buffer() {
    interpreter.heap_.shrink(sink.counted_bytes);
    interpreter.out_ = outer;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Value take() {
    Value value = interpreter.heap_.string(std::move(sink.text));
    value.get<StringObject>().hold_spans(std::move(sink.spans));
    return value;
  }
  Interpreter& interpreter;
  Sink* outer;
  Sink sink;
};

// Switches to another activation during its lifetime.
struct Interpreter::Switch {
  Switch(Interpreter& owner, Value activation) : interpreter(owner), outer(owner.current_) {
    owner.current_ = std::move(activation);
  }
  ~Switch() { interpreter.current_ = outer; }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;
  Interpreter& interpreter;
  Value outer;
};

}  // namespace slimexx::text::jinja
