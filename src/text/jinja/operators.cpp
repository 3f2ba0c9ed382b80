// Python's arithmetic on values. Checks overflow and size, where Python has big integers and no
// limits.
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

[[noreturn]] void unsupported(const char* op, const Value& a, const Value& b) {
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a),
                   type_name(b)));
}
[[noreturn]] void fail_overflow() { fail("an integer needs more than 127 bits"); }

bool both_integral(const Value& a, const Value& b) { return a.is_integral() && b.is_integral(); }
void require_numbers(const char* op, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) unsupported(op, a, b);
}

Value add_strings(Heap& heap, const Value& a, const Value& b) {
  const auto &x = a.get<StringObject>(), &y = b.get<StringObject>();
  heap.check_size(x.text.size() + y.text.size());
  heap.charge_bytes(x.text.size() + y.text.size());
  if (!x.markup && !y.markup) return heap.string(x.text + y.text);
  return heap.markup((x.markup ? x.text : escape_html(heap, x.text)) +
                     (y.markup ? y.text : escape_html(heap, y.text)));
}

Value repeat_sequence(Heap& heap, const Value& sequence, Int count) {
  const auto length = static_cast<uint64_t>(sequence.is(Kind::kString)
                                                ? static_cast<int64_t>(sequence.text().size())
                                                : length_of(sequence));
  if (count < 0 || length == 0) count = 0;
  const Int limit = Int{1} << 40;
  if (count > limit) fail("the repeated value would exceed the limit for one value");
  const uint64_t total = saturating_multiply(static_cast<uint64_t>(count), length);
  if (sequence.is(Kind::kString)) {
    heap.check_size(total);
    heap.charge_bytes(total);
    heap.charge(static_cast<uint64_t>(count) / 8);
    std::string out;
    out.reserve(total);
    for (Int i = 0; i < count; ++i) out += sequence.text();
    return sequence.get<StringObject>().markup ? heap.markup(std::move(out))
                                               : heap.string(std::move(out));
  }
  heap.check_items(total);
  heap.charge(total);
  Values items;
  items.reserve(total);
  for (Int i = 0; i < count; ++i)
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  return sequence.is(Kind::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
double floor_div(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  return std::fmod(a, b) != 0 && (std::fmod(a, b) < 0) != (b < 0) ? std::round(quotient - 1)
                                                                  : std::round(quotient);
}
Int floor_div(Int a, Int b) {
  const Int quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

}  // namespace

Int require_int(const Value& value, const char* what) {
  if (!value.is_integral())
    fail(fmt::format("{} must be an integer, not {}", what, type_name(value)));
  return value.as_int();
}

int64_t optional_int(const Value& value, int64_t fallback, const char* what) {
  if (value.is(Kind::kMissing) || value.is(Kind::kNone)) return fallback;
  const Int i = require_int(value, what);
  if (i > INT64_MAX) return INT64_MAX;
  return i < INT64_MIN ? INT64_MIN : static_cast<int64_t>(i);
}

Value add_values(Heap& heap, const Value& a, const Value& b) {
  if (a.is(Kind::kString) && b.is(Kind::kString)) return add_strings(heap, a, b);
  if (a.is_sequence() && a.kind() == b.kind()) {
    const uint64_t count = a.items().size() + b.items().size();
    heap.check_items(count);
    heap.charge(count);
    Values items;
    items.reserve(count);
    for (const Value* part : {&a, &b})
      items.insert(items.end(), part->items().begin(), part->items().end());
    return a.is(Kind::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
  }
  require_numbers("+", a, b);
  if (!both_integral(a, b)) return Value::real(a.as_double() + b.as_double());
  Int sum;
  if (__builtin_add_overflow(a.as_int(), b.as_int(), &sum)) fail_overflow();
  return Value::integer(sum);
}

Value subtract_values(Heap&, const Value& a, const Value& b) {
  require_numbers("-", a, b);
  if (!both_integral(a, b)) return Value::real(a.as_double() - b.as_double());
  Int difference;
  if (__builtin_sub_overflow(a.as_int(), b.as_int(), &difference)) fail_overflow();
  return Value::integer(difference);
}

Value multiply_values(Heap& heap, const Value& a, const Value& b) {
  const auto repeats = [](const Value& value) {
    return value.is(Kind::kString) || value.is_sequence();
  };
  if (repeats(a) && b.is_integral()) return repeat_sequence(heap, a, b.as_int());
  if (repeats(b) && a.is_integral()) return repeat_sequence(heap, b, a.as_int());
  require_numbers("*", a, b);
  if (!both_integral(a, b)) return Value::real(a.as_double() * b.as_double());
  Int product;
  if (__builtin_mul_overflow(a.as_int(), b.as_int(), &product)) fail_overflow();
  return Value::integer(product);
}

Value divide_values(const Value& a, const Value& b) {
  require_numbers("/", a, b);
  if (b.as_double() == 0) fail("division by zero");
  return Value::real(a.as_double() / b.as_double());
}

Value floor_divide_values(const Value& a, const Value& b) {
  require_numbers("//", a, b);
  if (b.as_double() == 0) fail("integer division or modulo by zero");
  if (!both_integral(a, b)) return Value::real(floor_div(a.as_double(), b.as_double()));
  if (b.as_int() == -1) return negate_value(a);
  return Value::integer(floor_div(a.as_int(), b.as_int()));
}

Value modulo_values(Heap& heap, const Value& a, const Value& b) {
  if (a.is(Kind::kString)) return heap.string(format_percent(heap, a.get<StringObject>(), b));
  for (const Value* operand : {&a, &b}) {
    if (operand->is(Kind::kUndefined)) fail(operand->get<UndefinedObject>().message);
  }
  require_numbers("%", a, b);
  if (b.as_double() == 0) fail("integer division or modulo by zero");
  if (!both_integral(a, b)) return Value::real(floor_mod(a.as_double(), b.as_double()));
  if (b.as_int() == -1) return Value::integer(0);
  const Int rest = a.as_int() % b.as_int();
  return Value::integer(rest != 0 && (rest < 0) != (b.as_int() < 0) ? rest + b.as_int() : rest);
}

Value power_values(Heap& heap, const Value& a, const Value& b) {
  require_numbers("**", a, b);
  if (!both_integral(a, b) || b.as_int() < 0) {
    if (a.as_double() == 0 && b.as_double() < 0) fail("0.0 cannot be raised to a negative power");
    if (a.as_double() < 0 && b.as_double() != std::floor(b.as_double()))
      fail("the power would be a complex number");
    const double power = std::pow(a.as_double(), b.as_double());
    if (std::isinf(power) && std::isfinite(a.as_double()) && std::isfinite(b.as_double())) {
      fail("numerical result out of range");
    }
    return Value::real(power);
  }
  Int base = a.as_int(), exponent = b.as_int(), result = 1;
  while (exponent > 0) {
    heap.charge(1);
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

Value negate_value(const Value& a) {
  if (a.is(Kind::kUndefined)) fail(a.get<UndefinedObject>().message);
  if (a.is(Kind::kFloat)) return Value::real(-a.as_double());
  if (!a.is_integral()) fail(fmt::format("bad operand type for unary -: '{}'", type_name(a)));
  Int result;
  if (__builtin_sub_overflow(Int{0}, a.as_int(), &result)) fail_overflow();
  return Value::integer(result);
}

namespace {

struct SliceRange {
  int64_t start, stop, step, count;
};

// slice.indices: bounds clipped to the length.
SliceRange clip_slice(int64_t length, const Value& start, const Value& stop, const Value& step) {
  SliceRange range{0, 0, optional_int(step, 1, "a slice's step"), 0};
  if (range.step == 0) fail("slice step cannot be zero");
  range.step = std::max(range.step, -INT64_MAX);
  const bool forward = range.step > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? length : length - 1;
  const auto clip = [&](const Value& bound, int64_t fallback) {
    if (bound.is(Kind::kNone)) return fallback;
    int64_t i = optional_int(bound, 0, "a slice's bound");
    if (i < 0) i += length;
    return std::clamp(i, low, high);
  };
  range.start = clip(start, forward ? 0 : length - 1);
  range.stop = clip(stop, forward ? length : -1);
  const int64_t span = forward ? range.stop - range.start : range.start - range.stop;
  const int64_t stride = forward ? range.step : -range.step;
  range.count = span <= 0 ? 0 : (span - 1) / stride + 1;
  return range;
}

Value slice_string(Heap& heap, const StringObject& string, const SliceRange& range) {
  if (range.step == 1) {
    heap.charge_characters(string.ascii() ? 0 : string.text.size());
    const size_t begin = byte_offset(string, range.start);
    const size_t end = byte_offset(string, range.start + range.count);
    return heap.string(string.text.substr(begin, end - begin));
  }
  std::vector<std::string_view> characters;
  heap.charge_characters(string.text.size());
  heap.check_size(static_cast<uint64_t>(string.length) * sizeof(std::string_view));
  for (std::string_view rest = string.text; !rest.empty();
       rest.remove_prefix(characters.back().size())) {
    characters.push_back(first_character(rest));
  }
  heap.charge(static_cast<uint64_t>(string.length));
  std::string out;
  for (int64_t i = 0; i < range.count; ++i)
    out += characters[static_cast<size_t>(range.start + i * range.step)];
  return heap.string(std::move(out));
}

}  // namespace

Value slice_value(Heap& heap, const Value& value, const Value& start, const Value& stop,
                  const Value& step) {
  const int64_t length = length_of(value);
  if (value.is(Kind::kString)) {
    return slice_string(heap, value.get<StringObject>(), clip_slice(length, start, stop, step));
  }
  if (value.is(Kind::kRange)) {
    const SliceRange range = clip_slice(length, start, stop, step);
    const auto& source = value.get<RangeObject>();
    const auto at = [&](Int i) { return source.start + i * source.step; };
    const Int stride = source.step * range.step;
    if (range.count == 0 || stride > INT64_MAX || stride < -INT64_MAX) {
      return {Kind::kRange, heap.make<RangeObject>(at(range.start),
                                                   at(range.start) + (range.count > 0 ? 1 : 0), 1)};
    }
    return {Kind::kRange,
            heap.make<RangeObject>(at(range.start),
                                   at(Int{range.start} + Int{range.count} * range.step), stride)};
  }
  if (value.is(Kind::kDict)) fail("unhashable type: 'slice'");
  if (!value.is_sequence()) fail(fmt::format("'{}' object is not subscriptable", type_name(value)));
  const SliceRange range = clip_slice(length, start, stop, step);
  heap.charge(static_cast<uint64_t>(range.count));
  Values items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(value.items()[static_cast<size_t>(range.start + i * range.step)]);
  }
  return value.is(Kind::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

}  // namespace slimexx::text::jinja
