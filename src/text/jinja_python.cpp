#include "text/jinja_python.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "slimexx/base/strings.h"
#include "text/jinja_ast.h"
#include "text/jinja_unicode.h"

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
    case Kind::kUndefined:  // the class defines __call__, which raises
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
  if (depth > kMaxContainerDepth) fail("values nested too deeply to compare");
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
      a.object()->heap.charge_bytes(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      a.object()->heap.charge(a.items().size());
      return equal_items(a.items(), b.items(), depth);
    case Kind::kDict:
      a.object()->heap.charge(a.dict().entries.size());
      return equal_dicts(a.dict(), b.dict(), depth);
    case Kind::kRange:
      return equal_ranges(a.get<RangeObject>(), b.get<RangeObject>());
    default:
      return a.object() == b.object();
  }
}

bool less_values(const Value& a, const Value& b, const char* op, int depth) {
  if (depth > kMaxContainerDepth) fail("values nested too deeply to compare");
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {  // UTF-8 keeps the order of code points
    a.object()->heap.charge_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Values &x = a.items(), &y = b.items();
    a.object()->heap.charge(std::min(x.size(), y.size()));
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
  const char* begin = text.data() + from;
  const void* found = memmem(begin, text.size() - from, part.data(), part.size());
  const size_t at = found == nullptr
                        ? text.size()
                        : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  heap.charge_bytes(at - from);
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

std::string format_int(Int value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  std::string digits;
  for (; value != 0; value /= 10) {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (negative ? -digit : digit));
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// Shortest digits; plain notation for exponents -4 .. 15, as float.__repr__ has it.
std::string format_python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::string repr_string(std::string_view text) {
  const bool double_quoted =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = next_code_point(text, i);
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, i - begin);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  return out + quote;
}

namespace {

void check_text(const std::string& out, size_t limit) {
  if (out.size() > limit) fail(fmt::format("a text of more than {} bytes", limit));
}

void append_items(std::string& out, const Values& items, size_t limit, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], limit, depth + 1);
    check_text(out, limit);
  }
}

void append_dict(std::string& out, const DictObject& dict, size_t limit, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, key, limit, depth + 1);
    out += ": ";
    append_repr(out, value, limit, depth + 1);
    check_text(out, limit);
  }
  out += '}';
}

void append_view(std::string& out, const Value& value, size_t limit, int depth) {
  out += type_name(value);
  out += "([";
  append_items(out, iterate(value.object()->heap, value), limit, depth);
  out += "])";
}

void append_range(std::string& out, const RangeObject& range) {
  out += fmt::format("range({}, {}", range.start, range.stop);
  if (range.step != 1) out += fmt::format(", {}", range.step);
  out += ')';
}

void append_loop(std::string& out, const LoopObject& loop) {
  out += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.length);
}

}  // namespace

void append_repr(std::string& out, const Value& value, size_t limit, int depth) {
  if (depth > kMaxContainerDepth) fail("values nested too deeply to print");
  switch (value.kind()) {
    case Kind::kString:
      if (value.get<StringObject>().markup) {
        out += "Markup(" + repr_string(value.text()) + ")";
      } else {
        out += repr_string(value.text());
      }
      break;
    case Kind::kMissing:
    case Kind::kUndefined:
      out += "Undefined";
      break;
    case Kind::kNamespace:
      out += "<Namespace ";
      append_repr(out, value.get<NamespaceObject>().attributes, limit, depth + 1);
      out += '>';
      break;
    case Kind::kNone:
      out += "None";
      break;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      break;
    case Kind::kInt:
      out += format_int(value.as_int());
      break;
    case Kind::kFloat:
      out += format_python_float(value.as_double());
      break;
    case Kind::kList:
      out += '[';
      append_items(out, value.items(), limit, depth);
      out += ']';
      break;
    case Kind::kTuple:
      out += '(';
      append_items(out, value.items(), limit, depth);
      out += value.items().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict:
      append_dict(out, value.dict(), limit, depth);
      break;
    case Kind::kView:
      append_view(out, value, limit, depth);
      break;
    case Kind::kRange:
      append_range(out, value.get<RangeObject>());
      break;
    case Kind::kMacro:
      out += fmt::format("<Macro {}>", repr_string(value.get<MacroObject>().function.name));
      break;
    case Kind::kLoop:
      append_loop(out, value.get<LoopObject>());
      break;
    default:
      out += fmt::format("<{} object>", type_name(value));
      break;
  }
  check_text(out, limit);
}

void append_str(std::string& out, const Value& value, size_t limit) {
  if (value.is(Kind::kString)) {
    if (out.size() + value.text().size() > limit)
      fail(fmt::format("a text of more than {} bytes", limit));
    out += value.text();
  } else if (!value.is(Kind::kUndefined) && !value.is(Kind::kMissing)) {
    append_repr(out, value, limit);
  }
}

std::string to_str(Heap& heap, const Value& value) {
  std::string out;
  append_str(out, value, heap.max_value_bytes());
  return out;
}

Value to_string_value(Heap& heap, const Value& value) {
  return value.is(Kind::kString) ? value : heap.string(to_str(heap, value));
}

namespace {

Values iterate_string(Heap& heap, const std::string& text) {
  heap.check_items(text.size() * 4);
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
  heap.check_items(static_cast<uint64_t>(range.size()));
  Values out;
  for (int64_t i = 0; i < range.size(); ++i)
    out.push_back(Value::integer(Int{range.start} + Int{i} * range.step));
  return out;
}

}  // namespace

Values iterate(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
    case Kind::kTuple:
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
      iterator.next = iterator.items.size();
      return Values(begin, iterator.items.end());
    }
    default:
      fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

}  // namespace slimexx::text::jinja
