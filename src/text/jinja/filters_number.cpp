// Filters on numbers.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

std::optional<Int> truncate_real(double value) {
  if (!(std::abs(value) < 1.7e38)) return std::nullopt;
  return static_cast<Int>(value);
}

std::optional<Int> to_int(const Value& input, int base) {
  if (input.is_integral()) return input.as_int();
  if (input.is(Kind::kFloat)) return truncate_real(input.as_double());
  if (!input.is(Kind::kString)) return std::nullopt;
  if (const auto value = parse_python_int(input.text(), base)) return value;
  const auto real = parse_python_float(input.text());
  return real ? truncate_real(*real) : std::nullopt;
}

void refuse_undefined(const Value& value) {
  if (value.is(Kind::kUndefined)) fail(value.get<UndefinedObject>().message);
}

// Charges the work of parsing a number from a string.
void charge_reading(Interpreter& in, const Value& input) {
  if (input.is(Kind::kString)) in.heap().charge_characters(2 * input.text().size());
}

Value filter_int(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("int", arguments, {"default", "base"}, 0);
  refuse_undefined(input);
  const int64_t base = optional_int(bound[1], 10, "base");
  charge_reading(in, input);
  const bool valid_base = base == 0 || (base >= 2 && base <= 36);
  if (const auto value = to_int(input, valid_base ? static_cast<int>(base) : 10))
    return Value::integer(*value);
  return bound[0].is(Kind::kMissing) ? Value::integer(0) : bound[0];
}

Value filter_float(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("float", arguments, {"default"}, 0);
  refuse_undefined(input);
  charge_reading(in, input);
  if (input.is_number()) return Value::real(input.as_double());
  if (input.is(Kind::kString)) {
    if (const auto value = parse_python_float(input.text())) return Value::real(*value);
  }
  return bound[0].is(Kind::kMissing) ? Value::real(0) : bound[0];
}

Value filter_abs(Interpreter&, const Value& input, const Arguments& arguments) {
  bind_arguments("abs", arguments, {}, 0);
  refuse_undefined(input);
  if (!input.is_number()) fail(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  if (input.is(Kind::kFloat)) return Value::real(std::abs(input.as_double()));
  return input.as_int() < 0 ? negate_value(input) : Value::integer(input.as_int());
}

// Rounded correctly to the decimal, halves to even, like Python's round(); this relies on the exact
// rounding of printf.
double round_real(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision >= 0) {
    char buffer[700];
    std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), value);
    return std::strtod(buffer, nullptr);
  }
  const double power = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / power) * power;
}

Value round_int(Int value, int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -37) return Value::integer(0);
  Int power = 1;
  for (int64_t i = precision; i < 0; ++i) power *= 10;
  Int quotient = value / power;
  const Int rest = value % power, twice = (rest < 0 ? -rest : rest) * 2;
  if (twice > power || (twice == power && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  Int rounded;
  if (__builtin_mul_overflow(quotient, power, &rounded))
    fail("an integer needs more than 127 bits");
  return Value::integer(rounded);
}

Value filter_round(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("round", arguments, {"precision", "method"}, 0);
  const std::string method = bound[1].is(Kind::kMissing) ? "common" : to_str(in.heap(), bound[1]);
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  refuse_undefined(input);
  if (!input.is_number()) fail(fmt::format("round needs a number, not {}", type_name(input)));
  const int64_t precision = optional_int(bound[0], 0, "precision");
  in.charge(100);  // printing may produce all digits of a real number
  if (method == "common") {
    if (input.is_integral()) return round_int(input.as_int(), precision);
    return Value::real(round_real(input.as_double(), precision));
  }
  const double power = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * power;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power);
}

Value filter_sum(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("sum", arguments, {"attribute", "start"}, 0);
  const AttributePath path(in, bound[0]);
  Value total = bound[1].is(Kind::kMissing) ? Value::integer(0) : bound[1];
  if (total.is(Kind::kString)) fail("sum() can't sum strings");
  for (const Value& item : in.list_of(input)) {
    const Value value = path.get(in, item);
    refuse_undefined(value);
    total = add_values(in.heap(), total, value);
  }
  return total;
}

constexpr FilterEntry kFilters[] = {
    {"int", filter_int},     {"float", filter_float}, {"abs", filter_abs},
    {"round", filter_round}, {"sum", filter_sum},
};

}  // namespace

FilterTable number_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace slimexx::text::jinja
