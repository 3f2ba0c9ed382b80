// Python's view of values: truth, equality, order, str(), repr(), json.dumps, iteration.
#pragma once
#include <fmt/format.h>
#include <cstdint>

#include <functional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace slimexx::text::jinja {

const char* type_name(const Value& value);  // as Python names it
bool is_true(const Value& value);
bool is_callable(const Value& value);
bool is_iterable(const Value& value);

bool equal_values(const Value& a, const Value& b, int depth = 0);
// Python's a < b; fails if Python would raise TypeError. `op` is for the message.
bool less_values(const Value& a, const Value& b, const char* op = "<", int depth = 0);
bool contains(const Value& container, const Value& item);

// text.find(part, from) in linear time for any input (std::string::find is quadratic).
size_t find_text(Heap& heap, std::string_view text, std::string_view part, size_t from);

std::string format_int(Int value);
std::string format_python_float(double value);  // float.__repr__
// str() and repr() of a value; the heap's limit for one value bounds their length.
void append_str(Heap& heap, std::string& out, const Value& value);
void append_repr(Heap& heap, std::string& out, const Value& value, int depth = 0);
std::string to_str(Heap& heap, const Value& value);
Value to_string_value(Heap& heap, const Value& value);  // the value itself if it is a string
// Text of a value; does not copy if the value is a string.
class TextOf {
 public:
  TextOf(Heap& heap, const Value& value) : value_(to_string_value(heap, value)) {}
  const std::string& operator*() const { return value_.text(); }
  const std::string* operator->() const { return &value_.text(); }
  const StringObject& object() const { return value_.get<StringObject>(); }

 private:
  Value value_;
};

// len(); -1 if Python would raise TypeError.
int64_t length_of(const Value& value);
// list(value): consumes iterators. Fails if the value is not iterable.
Values iterate(Heap& heap, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string dump_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace slimexx::text::jinja
