#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/python.h"
#include "text/jinja/syntax/ast.h"

namespace slimexx::text::jinja {
namespace {

int depth_of(const Values& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  if (depth >= kMaxContainerDepth)
    fail(fmt::format("values are nested deeper than {}", kMaxContainerDepth));
  return depth + 1;
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

constexpr size_t kLinearLookup = 8;  // with fewer entries a scan is faster than hashing

}  // namespace

void fail(std::string message, std::string hint) {
  throw Fault{std::move(message), std::move(hint)};
}

std::string shorten(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return fmt::format("{}... ({} bytes)", text.substr(0, end), text.size());
}

Object::Object(Heap& owner, uint64_t size, int level) : heap(owner), bytes(size), depth(level) {
  heap.grow(bytes);
}
Object::~Object() { heap.shrink(bytes); }

Value Value::none() {
  Value value;
  value.kind_ = Kind::kNone;
  return value;
}
Value Value::boolean(bool b) {
  Value value;
  value.kind_ = Kind::kBool;
  value.integer_ = b;
  return value;
}
Value Value::integer(Int i) {
  Value value;
  value.kind_ = Kind::kInt;
  value.integer_ = i;
  return value;
}
Value Value::real(double d) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.real_ = d;
  return value;
}
Value::Value(Kind kind, Object* object) : kind_(kind), object_(object) { ++object->references; }
Value::Value(const Value& other) : kind_(other.kind_), integer_(other.integer_) {
  if (holds_object()) ++object_->references;
}
Value::Value(Value&& other) noexcept : kind_(other.kind_), integer_(other.integer_) {
  other.kind_ = Kind::kMissing;
}
Value& Value::operator=(Value other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(integer_, other.integer_);
  return *this;
}
Value::~Value() {
  if (holds_object() && --object_->references == 0) delete object_;
}

bool Value::holds_object() const {
  switch (kind_) {
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return false;
    default:
      return true;
  }
}
double Value::as_double() const {
  return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_);
}
const std::string& Value::text() const { return get<StringObject>().text; }
const Values& Value::items() const { return get<ListObject>().items; }
DictObject& Value::dict() const { return get<DictObject>(); }

StringObject::StringObject(Heap& owner, std::string value)
    : Object(owner, sizeof(StringObject) + value.capacity(), 0),
      text(std::move(value)),
      length(count_code_points(text)) {}

void StringObject::hold_spans(Spans rendered) {
  const uint64_t more = rendered.capacity() * sizeof(rendered[0]);
  bytes += more;
  heap.grow(more);
  spans = std::move(rendered);
}

ListObject::ListObject(Heap& owner, Values values)
    : Object(owner, sizeof(ListObject) + values.capacity() * sizeof(Value), depth_of(values)),
      items(std::move(values)) {}

DictObject::DictObject(Heap& owner) : Object(owner, sizeof(DictObject), 1) {}

int64_t DictObject::position(const Value& key, size_t hash) const {
  if (entries.size() <= kLinearLookup) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equal_values(entries[i].first, key)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    heap.charge(1);  // a template can make many keys with the same hash
    if (equal_values(entries[it->second].first, key)) return it->second;
  }
  return -1;
}

const Value* DictObject::find(const Value& key) const {
  const int64_t at = position(key, hash_value(key));
  return at < 0 ? nullptr : &entries[static_cast<size_t>(at)].second;
}

const Value* DictObject::find(std::string_view key) const {
  heap.charge_bytes(key.size());
  const auto matches = [&](const Value& k) {
    if (!k.is(Kind::kString) || k.text().size() != key.size()) return false;
    heap.charge_bytes(key.size());
    return k.text() == key;
  };
  if (entries.size() <= kLinearLookup) {
    for (const auto& [k, v] : entries) {
      if (matches(k)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries[it->second].first)) return &entries[it->second].second;
  }
  return nullptr;
}

void DictObject::set(const Value& key, Value value) {
  const size_t hash = hash_value(key);
  depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  if (depth > kMaxContainerDepth)
    fail(fmt::format("values are nested deeper than {}", kMaxContainerDepth));
  const int64_t at = position(key, hash);
  if (at >= 0) {
    entries[static_cast<size_t>(at)].second = std::move(value);
    return;
  }
  constexpr uint64_t kEntryBytes =
      4 * sizeof(Value) + 48;  // a pair, the vector's reserve, an index node
  bytes += kEntryBytes;
  heap.grow(kEntryBytes);
  heap.charge(3);
  heap.check_live();
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kLinearLookup + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_value(entries[i].first), i);
  } else if (entries.size() > kLinearLookup) {
    index_.emplace(hash, static_cast<uint32_t>(entries.size() - 1));
  }
}

void DictObject::clear() {
  index_.clear();
  entries.clear();
}

UndefinedObject::UndefinedObject(Heap& owner, std::string text)
    : Object(owner, sizeof(UndefinedObject) + text.size(), 0), message(std::move(text)) {}

RangeObject::RangeObject(Heap& owner, Int first, Int end, Int stride)
    : Object(owner, sizeof(RangeObject), 0), start(first), stop(end), step(stride) {}

int64_t RangeObject::size() const {
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + stride - 1) / stride;
  return static_cast<int64_t>(std::min<Int>(count, INT64_MAX));
}

ViewObject::ViewObject(Heap& owner, Value dictionary, ViewKind kind)
    : Object(owner, sizeof(ViewObject), depth_of({dictionary})),
      dict(std::move(dictionary)),
      view(kind) {}

IteratorObject::IteratorObject(Heap& owner, Values values, const char* type)
    : Object(owner, sizeof(IteratorObject) + values.capacity() * sizeof(Value), depth_of(values)),
      items(std::move(values)),
      type_name(type) {}

NamespaceObject::NamespaceObject(Heap& owner)
    : Object(owner, sizeof(NamespaceObject), 0),
      attributes(Kind::kDict, owner.make<DictObject>()) {}

CyclerObject::CyclerObject(Heap& owner, Values values)
    : Object(owner, sizeof(CyclerObject) + values.size() * sizeof(Value), depth_of(values)),
      items(std::move(values)) {}

JoinerObject::JoinerObject(Heap& owner, Value text)
    : Object(owner, sizeof(JoinerObject), depth_of({text})), separator(std::move(text)) {}

Activation::Activation(Heap& owner, const Function& code, Value outer)
    : Object(owner, sizeof(Activation) + static_cast<size_t>(code.slot_count) * sizeof(Value), 0),
      slots(static_cast<size_t>(code.slot_count)),
      parent(std::move(outer)) {}

void Activation::clear() {
  slots.clear();
  parent = Value();
}

MacroObject::MacroObject(Heap& owner, const Function& code, Value outer)
    : Object(owner, sizeof(MacroObject), 0), function(code), closure(std::move(outer)) {}

LoopObject::LoopObject(Heap& owner, Values values, const Stmt& loop_statement)
    : Object(owner, sizeof(LoopObject) + values.capacity() * sizeof(Value), depth_of(values)),
      source(std::move(values)),
      test_pending(loop_statement.test != nullptr),
      statement(loop_statement) {
  if (!test_pending) length = static_cast<int64_t>(source.size());
}

void LoopObject::clear() {
  last_changed = Value();
  closure = Value();
}

size_t hash_value(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      value.object()->heap.charge_bytes(value.text().size());
      return std::hash<std::string_view>{}(value.text());
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>{}(value.as_double());
    case Kind::kFloat:
      return std::hash<double>{}(value.as_double());
    case Kind::kTuple: {
      size_t hash = 0x345678;
      value.object()->heap.charge(value.items().size());
      for (const Value& item : value.items()) hash = hash * 1000003 ^ hash_value(item);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
      fail(fmt::format("unhashable type: '{}'", type_name(value)));
    default:
      return static_cast<size_t>(value.kind()) * 7919;
  }
}

Heap::~Heap() {
  for (const Value& value : kept_) value.object()->clear();
  kept_.clear();
}

namespace {

constexpr uint64_t kObjectWork = 2;  // to allocate and free

}  // namespace

Value Heap::string(std::string text) {
  check_size(text.size());
  charge(kObjectWork + text.size() / 64);
  return {Kind::kString, make<StringObject>(std::move(text))};
}
Value Heap::markup(std::string text) {
  Value value = string(std::move(text));
  value.get<StringObject>().markup = true;
  return value;
}
Value Heap::list(Values items) {
  check_items(items.size());
  charge(kObjectWork + items.size() / 4);
  return {Kind::kList, make<ListObject>(std::move(items))};
}
Value Heap::tuple(Values items) {
  check_items(items.size());
  charge(kObjectWork + items.size() / 4);
  return {Kind::kTuple, make<ListObject>(std::move(items))};
}
Value Heap::undefined(std::string message) {
  charge(kObjectWork);
  return {Kind::kUndefined, make<UndefinedObject>(std::move(message))};
}
Value Heap::undefined_name(std::string_view name) {
  return undefined(fmt::format("'{}' is undefined", shorten(name)));
}
Value Heap::iterator(Values items, const char* type) {
  check_items(items.size());
  charge(kObjectWork + items.size() / 4);
  return {Kind::kIterator, make<IteratorObject>(std::move(items), type)};
}

namespace {

constexpr const char* kLimitHint =
    "a chat template normally needs a small part of this limit: fix the template, or shorten the "
    "conversation";

}  // namespace

void Heap::begin_limits() {
  constexpr uint64_t kWorkPerByte = 2;
  baseline_ = live_bytes_;
  max_work_ = granted_work_ + kWorkPerByte * live_bytes_;
  work_ = 0;
}

void Heap::fail_work() const {
  fail(fmt::format("the template takes more than {} units of work", max_work_), kLimitHint);
}

void Heap::check_size(uint64_t bytes) const {
  if (bytes > static_cast<uint64_t>(max_value_bytes_)) {
    fail(fmt::format("a value of {} bytes exceeds the limit of {}", bytes, max_value_bytes_),
         kLimitHint);
  }
  check_live();
}

void Heap::check_live() const {
  if (live_bytes_ > baseline_ + 4 * static_cast<uint64_t>(max_value_bytes_)) {
    fail(fmt::format("the template's values take more than {} bytes", 4 * max_value_bytes_),
         kLimitHint);
  }
}

}  // namespace slimexx::text::jinja
