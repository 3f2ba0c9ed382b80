#include "text/jinja/python.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "slimexx/base/strings.h"
#include "text/jinja/syntax/ast.h"

namespace slimexx::text::jinja {

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.get<StringObject>().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      switch (value.get<ViewObject>().view) {
        case ViewKind::kItems:
          return "dict_items";
        case ViewKind::kKeys:
          return "dict_keys";
        case ViewKind::kValues:
          return "dict_values";
      }
      return "dict_items";
    case Kind::kIterator:
      return value.get<IteratorObject>().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kBuiltin:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kActivation:
      return "activation";
  }
  return "?";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kLoop:  // has a length, and exists only while it has items
      return true;
    default:
      return length_of(value) != 0;
  }
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:  // jinja2's class defines __call__, which raises
    case Kind::kMacro:
    case Kind::kBuiltin:
    case Kind::kMethod:
    case Kind::kLoop:
    case Kind::kJoiner:
      return true;
    default:
      return false;
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.get<StringObject>().length;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kRange:
      return value.get<RangeObject>().size();
    case Kind::kView:
      return length_of(value.get<ViewObject>().dict);
    default:
      return -1;
  }
}

namespace {

bool equal_items(const Values& a, const Values& b, int depth) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal_values(x, y, depth + 1); });
}

bool equal_dicts(const DictObject& a, const DictObject& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal_values(entry.second, *other, depth + 1);
  });
}

bool equal_ranges(const RangeObject& a, const RangeObject& b) {
  if (a.size() != b.size()) return false;
  return a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step));
}

}  // namespace

bool equal_values(const Value& a, const Value& b, int depth) {
  if (depth > kMaxContainerDepth) fail("values are nested too deeply to compare");
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      a.object()->heap.charge_bytes(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      if (a.items().size() != b.items().size()) return false;
      a.object()->heap.charge(a.items().size() + 1);
      return equal_items(a.items(), b.items(), depth);
    case Kind::kDict:
      a.object()->heap.charge(a.dict().entries.size() + 1);
      return equal_dicts(a.dict(), b.dict(), depth);
    case Kind::kRange:
      return equal_ranges(a.get<RangeObject>(), b.get<RangeObject>());
    default:
      return a.object() == b.object();
  }
}

bool less_values(const Value& a, const Value& b, const char* op, int depth) {
  if (depth > kMaxContainerDepth) fail("values are nested too deeply to compare");
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {  // byte order of UTF-8 is code point order
    a.object()->heap.charge_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Values &x = a.items(), &y = b.items();
    a.object()->heap.charge(std::min(x.size(), y.size()) + 1);
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal_values(x[i], y[i], depth + 1)) return less_values(x[i], y[i], op, depth + 1);
    }
    return x.size() < y.size();
  }
  fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a),
                   type_name(b)));
}

size_t find_text(Heap& heap, std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string::npos;
  heap.charge_bytes(part.size());
  if (part.size() > text.size() - from) return std::string::npos;
  const char* begin = text.data() + from;
  const void* found = memmem(begin, text.size() - from, part.data(), part.size());
  const size_t at = found == nullptr
                        ? text.size()
                        : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  heap.charge_characters(at - from);
  return found == nullptr ? std::string::npos : at;
}

bool contains(const Value& container, const Value& item) {
  const auto among = [&](const Values& items) {
    container.object()->heap.charge(items.size());
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& x) { return equal_values(x, item); });
  };
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      return find_text(container.object()->heap, container.text(), item.text(), 0) !=
             std::string::npos;
    case Kind::kList:
    case Kind::kTuple:
      return among(container.items());
    case Kind::kDict:
      return container.dict().find(item) != nullptr;
    case Kind::kRange: {
      const auto& range = container.get<RangeObject>();
      if (!item.is_number() || item.as_double() != std::floor(item.as_double())) return false;
      if (std::abs(item.as_double()) > 1e30) return false;  // out of range for any container
      const Int i = item.is(Kind::kFloat) ? static_cast<Int>(item.as_double()) : item.as_int();
      const Int steps = (i - range.start) / range.step;
      return steps >= 0 && steps < range.size() && range.start + steps * range.step == i;
    }
    case Kind::kView:
      if (container.get<ViewObject>().view == ViewKind::kKeys)
        return contains(container.get<ViewObject>().dict, item);
      return among(iterate(container.object()->heap, container));
    case Kind::kUndefined:
      return false;
    case Kind::kIterator:
      return among(iterate(container.object()->heap, container));
    default:
      fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
}

namespace {

Values iterate_string(Heap& heap, const std::string& text) {
  heap.check_items(saturating_multiply(text.size(), 4));
  Values out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    next_code_point(text, i);
    out.push_back(heap.string(text.substr(begin, i - begin)));
  }
  return out;
}

Values iterate_dict(Heap& heap, const DictObject& dict, ViewKind view) {
  heap.check_items(dict.entries.size() * 2);
  heap.charge(dict.entries.size());
  Values out;
  out.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    out.push_back(view == ViewKind::kKeys     ? key
                  : view == ViewKind::kValues ? value
                                              : heap.tuple({key, value}));
  }
  return out;
}

Values iterate_range(Heap& heap, const RangeObject& range) {
  const int64_t count = range.size();
  heap.check_items(static_cast<uint64_t>(count));
  heap.charge(static_cast<uint64_t>(count));
  Values out;
  out.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out.push_back(Value::integer(range.start + i * range.step));
  return out;
}

}  // namespace

Values iterate(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
    case Kind::kTuple:
      heap.charge(value.items().size());
      return value.items();
    case Kind::kString:
      return iterate_string(heap, value.text());
    case Kind::kDict:
      return iterate_dict(heap, value.dict(), ViewKind::kKeys);
    case Kind::kView: {
      const auto& view = value.get<ViewObject>();
      return iterate_dict(heap, view.dict.dict(), view.view);
    }
    case Kind::kRange:
      return iterate_range(heap, value.get<RangeObject>());
    case Kind::kIterator: {
      auto& iterator = value.get<IteratorObject>();
      const auto begin = iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next);
      heap.charge(iterator.items.size() - iterator.next);
      iterator.next = iterator.items.size();
      return Values(begin, iterator.items.end());
    }
    default:
      fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

}  // namespace slimexx::text::jinja
