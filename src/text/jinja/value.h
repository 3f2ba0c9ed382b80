// Values of the template language: JSON's kinds plus what templates make themselves (tuples,
// ranges, iterators, namespaces, macros, loops, bound methods). Containers are immutable, so only
// namespaces, loops and captured activations can form cycles; the heap clears those at its end.
// One heap belongs to one rendering on one thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace slimexx::text::jinja {

__extension__ using Int = __int128;

enum class Kind : uint8_t {
  kMissing,  // a name without a value; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // dict.items() and its like
  kIterator,  // what lazy filters return: passes over its items once
  kNamespace,
  kMacro,
  kBuiltin,
  kMethod,
  kLoop,
  kCycler,
  kJoiner,
  kActivation,  // variables of a function; never a template's value
};

class Heap;

struct Object {
  Object(Heap& owner, uint64_t size, int level);
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object();
  virtual void clear() {}  // drops the values held, to break cycles

  Heap& heap;
  uint64_t bytes;
  uint32_t references = 0;
  int depth;  // nesting of containers, so that destructors and printing recurse within bounds
};

// A fault of the template at run time; becomes an Error with the line.
struct Fault {
  std::string message;
  std::string hint;  // "": what helps in general
};
[[noreturn]] void fail(std::string message, std::string hint = "");
// The text, or the beginning of a long one with "...": for messages. Names and keys may have
// megabytes.
std::string shorten(std::string_view text, size_t max_bytes = 200);

struct StringObject;
struct ListObject;
struct DictObject;

class Value {
 public:
  Value() : kind_(Kind::kMissing), integer_(0) {}
  static Value none();
  static Value boolean(bool b);
  static Value integer(Int i);
  static Value real(double d);
  Value(Kind kind, Object* object);
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(Value other) noexcept;
  ~Value();

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool holds_object() const;

  bool as_bool() const { return integer_ != 0; }
  Int as_int() const { return integer_; }  // kInt or kBool
  double as_double() const;                // any number
  Object* object() const { return object_; }
  template <class T>
  T& get() const {
    return *static_cast<T*>(object_);
  }
  const std::string& text() const;
  const std::vector<Value>& items() const;  // kList or kTuple
  DictObject& dict() const;
  int depth() const { return holds_object() ? object_->depth : 0; }

 private:
  Kind kind_;
  union {
    Int integer_;
    double real_;
    Object* object_;
  };
};

using Values = std::vector<Value>;

using Spans = std::vector<std::pair<int64_t, int64_t>>;

struct StringObject final : Object {
  StringObject(Heap& owner, std::string value);
  std::string text;
  int64_t length;       // code points
  bool markup = false;  // escaped or declared safe: + escapes the other side
  Spans spans;          // generation blocks rendered into it; lost by any operation on the text
  void hold_spans(Spans rendered);
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
};

struct ListObject final : Object {
  ListObject(Heap& owner, Values values);
  Values items;
  bool is_group = false;  // a tuple of groupby: has .grouper and .list
};

size_t hash_value(const Value& value);  // faults if the value is unhashable

struct DictObject final : Object {
  explicit DictObject(Heap& owner);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);  // only before the dict is shared
  void clear() override;

  std::vector<std::pair<Value, Value>> entries;

 private:
  int64_t position(const Value& key, size_t hash) const;
  std::unordered_multimap<size_t, uint32_t> index_;
};

struct UndefinedObject final : Object {
  UndefinedObject(Heap& owner, std::string text);
  std::string message;
};

struct RangeObject final : Object {
  RangeObject(Heap& owner, Int first, Int end, Int stride);
  int64_t size() const;
  Int start, stop, step;  // a slice's end may lie beyond 64 bits
};

enum class ViewKind : uint8_t { kItems, kKeys, kValues };
struct ViewObject final : Object {
  ViewObject(Heap& owner, Value dictionary, ViewKind kind);
  Value dict;
  ViewKind view;
};

struct IteratorObject final : Object {
  IteratorObject(Heap& owner, Values values, const char* type);
  Values items;
  size_t next = 0;
  const char* type_name;
};

struct NamespaceObject final : Object {
  explicit NamespaceObject(Heap& owner);
  void clear() override { attributes = Value(); }
  Value attributes;  // a dict that is not shared
};

struct CyclerObject final : Object {
  CyclerObject(Heap& owner, Values values);
  Values items;
  size_t position = 0;
};

struct JoinerObject final : Object {
  JoinerObject(Heap& owner, Value text);
  Value separator;
  bool used = false;
};

struct Function;  // ast.h
struct Stmt;

// The variables of one call of a function (the template itself, a macro, a call block, a recursive
// loop). Kept alive by the macros made in it.
struct Activation final : Object {
  Activation(Heap& owner, const Function& code, Value outer);
  void clear() override;
  Values slots;
  Value parent;  // kActivation or missing
};

struct MacroObject final : Object {
  MacroObject(Heap& owner, const Function& code, Value outer);
  const Function& function;
  Value closure;  // kActivation
};

// The `loop` variable. Items are pulled one by one, so that the test of `for x in y if test` sees
// what the body did before, as in jinja2.
struct LoopObject final : Object {
  LoopObject(Heap& owner, Values values, const Stmt& loop_statement);
  void clear() override;  // when the loop ends: it holds its function's variables
  Values source;
  size_t next = 0;
  Value current, before, after;  // after: peeked, else missing
  int64_t index0 = -1;
  int64_t depth0 = 0;
  int64_t length = -1;  // once known
  bool test_pending;    // source still wants the loop's test
  Value last_changed;
  const Stmt& statement;
  Value closure;  // kActivation
};

// a * b, or the largest number where the product is larger.
inline uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// Makes every object, counts work and live bytes and holds what may be cyclic until it dies.
class Heap {
 public:
  Heap(int64_t max_value_bytes, int64_t max_work)
      : max_value_bytes_(max_value_bytes), granted_work_(static_cast<uint64_t>(max_work)) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  Value string(std::string text);
  Value markup(std::string text);
  Value list(Values items);
  Value tuple(Values items);
  Value undefined(std::string message);
  Value undefined_name(std::string_view name);
  Value iterator(Values items, const char* type = "generator");
  template <class T, class... Args>
  T* make(Args&&... args) {
    return new T(*this, std::forward<Args>(args)...);
  }
  // Keeps the object and clears it when the rendering ends.
  void keep(Kind kind, Object* object) { kept_.emplace_back(kind, object); }

  // Charges for work before it is done: one unit, some 50 ns, for an evaluated node or an element.
  // Work that grows with its operand must charge in proportion.
  void charge(uint64_t work) {
    if (work > max_work_ - work_) fail_work();
    work_ += work;
  }
  // For bytes that are copied, compared or hashed as a block.
  void charge_bytes(uint64_t bytes) { charge(bytes / 64 + 1); }
  // For bytes of text that are looked at one by one, or searched for another text.
  void charge_characters(uint64_t bytes) { charge(bytes / 8 + 1); }

  // Refuses an intermediate value of more than the limit before it is built.
  void check_size(uint64_t bytes) const;
  void check_items(uint64_t count) const { check_size(saturating_multiply(count, sizeof(Value))); }
  // The same for a text that grows.
  void check_text(const std::string& text) const {
    if (text.size() > static_cast<uint64_t>(max_value_bytes_)) check_size(text.size());
  }
  void grow(uint64_t bytes) { live_bytes_ += bytes; }
  void shrink(uint64_t bytes) { live_bytes_ -= bytes; }
  // Called where values are made in bulk: live values may take four times the one-value limit
  // beyond the caller's own variables.
  void check_live() const;
  // Call when the caller's variables are made: neither they nor the work for them count, and each
  // of their bytes grants a little work.
  void begin_limits();

 private:
  [[noreturn]] void fail_work() const;

  int64_t max_value_bytes_;
  uint64_t granted_work_, work_ = 0;
  uint64_t live_bytes_ = 0;
  // Before begin_limits nothing is refused.
  uint64_t max_work_ = UINT64_MAX, baseline_ = UINT64_MAX / 2;
  Values kept_;
};

inline constexpr int kMaxContainerDepth = 500;

}  // namespace slimexx::text::jinja
