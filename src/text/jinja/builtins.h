// Tables of the names that templates can use without defining them: filters, tests, global
// functions, methods.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/python.h"
#include "text/jinja/value.h"

namespace slimexx::text::jinja {

class Interpreter;

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

// Arguments by parameter name; missing ones are Kind::kMissing. Fails as Python does on too many,
// unknown or duplicate arguments, and if one of the first `required` is absent.
Values bind_arguments(std::string_view callee, const Arguments& arguments,
                      std::initializer_list<std::string_view> names, size_t required);

struct FilterEntry {
  const char* name;
  Value (*apply)(Interpreter&, const Value& input, const Arguments&);
};
struct TestEntry {
  const char* name;
  bool (*holds)(Interpreter&, const Value& input, const Arguments&);
};
struct BuiltinEntry {
  const char* name;
  Value (*call)(Interpreter&, const Arguments&);
};
struct MethodEntry {
  const char* name;
  Value (*call)(Interpreter&, const Value& self, const Arguments&);
};

const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);
const BuiltinEntry* find_builtin(std::string_view name);
// The method of that name for the value's type, or null.
const MethodEntry* find_method(const Value& value, std::string_view name);
const MethodEntry* find_string_method(std::string_view name);

// Parts of the tables, one per source file.
using FilterTable = std::pair<const FilterEntry*, size_t>;
FilterTable text_filters();
FilterTable sequence_filters();
FilterTable selection_filters();
FilterTable number_filters();

// The attribute argument of map, sort, groupby and similar filters: "a.b.0" walks attributes and
// items.
struct AttributePath {
  explicit AttributePath(Interpreter& interpreter, const Value& attribute);
  // `fallback`, unless missing or None, replaces an undefined value along the path.
  Value get(Interpreter& interpreter, Value item, const Value& fallback = Value()) const;
  Values keys;  // empty: the item itself
};
Value fold_case(Interpreter& interpreter, const Value& value);  // in lower case, if it is a string

struct BuiltinObject final : Object {
  BuiltinObject(Heap& owner, const BuiltinEntry& what)
      : Object(owner, sizeof(BuiltinObject), 0), entry(what) {}
  const BuiltinEntry& entry;
};
struct MethodObject final : Object {
  MethodObject(Heap& owner, const MethodEntry& what, Value receiver)
      : Object(owner, sizeof(MethodObject), receiver.depth() + 1),
        entry(what),
        self(std::move(receiver)) {
    if (depth > kMaxContainerDepth) fail("values are nested too deeply");
  }
  const MethodEntry& entry;
  Value self;
};

// Python's operators (operators.cpp).
Value add_values(Heap& heap, const Value& a, const Value& b);
Value subtract_values(Heap& heap, const Value& a, const Value& b);
Value multiply_values(Heap& heap, const Value& a, const Value& b);
Value divide_values(const Value& a, const Value& b);
Value floor_divide_values(const Value& a, const Value& b);
Value modulo_values(Heap& heap, const Value& a, const Value& b);
Value power_values(Heap& heap, const Value& a, const Value& b);
Value negate_value(const Value& a);
Value slice_value(Heap& heap, const Value& value, const Value& start, const Value& stop,
                  const Value& step);
Int require_int(const Value& value, const char* what);
// An integer argument that may be missing or None, limited to the range of int64.
int64_t optional_int(const Value& value, int64_t fallback, const char* what);

// Shared by the methods of str and the filters (string_methods.cpp).
std::string replace_text(Heap& heap, std::string_view text, std::string_view from,
                         std::string_view to, int64_t limit);
Values lines_of(Heap& heap, std::string_view text, bool keep_ends);
Value join_values(Heap& heap, const Values& items, std::string_view separator);
std::string justify_text(Heap& heap, const StringObject& string, int64_t width,
                         std::string_view fill, char align);

// Python's formatting (format.cpp).
std::string format_percent(Heap& heap, const StringObject& format, const Value& arguments);
std::string format_braces(Interpreter& interpreter, const StringObject& format,
                          const Arguments& arguments);
std::string escape_html(Heap& heap, std::string_view text);

}  // namespace slimexx::text::jinja
