// Values of the template language: JSON's kinds and kinds that only templates create (tuples,
// ranges, iterators, namespaces, macros, loops, bound methods). Containers are immutable, so only
// namespaces, loops and captured activations can form cycles; the heap clears those when it is
// destroyed. A heap belongs to one rendering on one thread.
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
  kMissing,  // a name without a value; templates never see it
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
  kView,      // dict.items() and similar
  kIterator,  // result of a lazy filter: can be iterated once
  kNamespace,
  kMacro,
  kBuiltin,
  kMethod,
  kLoop,
  kCycler,
  kJoiner,
  kActivation,  // the variables of a function; templates never see it
};

class Heap;

struct Object {
  Object(Heap& owner, uint64_t size, int level);
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object();
  virtual void clear() {}  // drops the values it holds, to break cycles

  Heap& heap;
  uint64_t bytes;
  uint32_t references = 0;
  int depth;  // nesting of containers; bounds the recursion of destructors and printing
};

// A run-time fault of the template; becomes an Error with the line.
struct Fault {
  std::string message;
  std::string hint;  // "": a general hint
};
[[noreturn]] void fail(std::string message, std::string hint = "");
// The text, cut with "..." if it is long, for messages. Names and keys may have megabytes.
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
  double as_double() const;                // any kind of number
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
  bool markup = false;  // escaped or declared safe: + escapes the other operand
  Spans spans;          // generation blocks rendered into it; any operation on the text drops them
  void hold_spans(Spans rendered);
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
};

struct ListObject final : Object {
  ListObject(Heap& owner, Values values);
  Values items;
  bool is_group = false;  // a tuple from groupby: has .grouper and .list
};

size_t hash_value(const Value& value);  // fails if the value is unhashable

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
  Int start, stop, step;  // the end of a slice may need more than 64 bits
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
// loop). Macros that are defined in the call keep it alive.
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
// the effects of earlier iterations of the body, as in jinja2.
struct LoopObject final : Object {
  LoopObject(Heap& owner, Values values, const Stmt& loop_statement);
  void clear() override;  // when the loop ends: breaks the cycle with its function's variables
  Values source;
  size_t next = 0;
  Value current, before, after;  // after: the peeked next item, or missing
  int64_t index0 = -1;
  int64_t depth0 = 0;
  int64_t length = -1;  // -1: not known yet
  bool test_pending;    // the loop's test has not been applied to `source`
  Value last_changed;
  const Stmt& statement;
  Value closure;  // kActivation
};

// a * b, or UINT64_MAX on overflow.
inline uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// Makes every object, counts work and live bytes, and keeps objects that may be in cycles until the
// heap is destroyed.
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
  // Keeps the object alive and clears it when the rendering ends.
  void keep(Kind kind, Object* object) { kept_.emplace_back(kind, object); }

  // Charges for work before it is done. One unit, about 50 ns, is one evaluated node or one
  // element. Work that grows with its operand must charge in proportion.
  void charge(uint64_t work) {
    if (work > max_work_ - work_) fail_work();
    work_ += work;
  }
  // Charges for `bytes` that are copied, compared or hashed as a block.
  void charge_bytes(uint64_t bytes) { charge(bytes / 64 + 1); }
  // Charges for `bytes` of text that are examined one by one or searched for another text.
  void charge_characters(uint64_t bytes) { charge(bytes / 8 + 1); }

  // Refuses an intermediate value above the limit before it is built.
  void check_size(uint64_t bytes) const;
  void check_items(uint64_t count) const { check_size(saturating_multiply(count, sizeof(Value))); }
  // check_size for a text that is being appended to.
  void check_text(const std::string& text) const {
    if (text.size() > static_cast<uint64_t>(max_value_bytes_)) check_size(text.size());
  }
  void grow(uint64_t bytes) { live_bytes_ += bytes; }
  void shrink(uint64_t bytes) { live_bytes_ -= bytes; }
  // Call when making many values: live values, without the caller's variables, may take at most
  // four times the limit for one value.
  void check_live() const;
  // Call after the caller's variables are made. These variables and the work to make them do not
  // count; each of their bytes raises the work limit a little.
  void begin_limits();

 private:
  [[noreturn]] void fail_work() const;

  int64_t max_value_bytes_;
  uint64_t granted_work_, work_ = 0;
  uint64_t live_bytes_ = 0;
  // No limits before begin_limits.
  uint64_t max_work_ = UINT64_MAX, baseline_ = UINT64_MAX / 2;
  Values kept_;
};

inline constexpr int kMaxContainerDepth = 500;

}  // namespace slimexx::text::jinja
