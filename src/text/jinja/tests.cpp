// The tests: names that can follow `is`.
#include <map>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

void no_arguments(const Arguments& arguments) { bind_arguments("test", arguments, {}, 0); }
Value one_argument(const Arguments& arguments) {
  return bind_arguments("test", arguments, {"other"}, 1)[0];
}

template <Kind kind>
bool is_kind(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(kind);
}

bool is_defined(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return !value.is(Kind::kUndefined);
}
bool is_number(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is_number();
}
template <bool wanted>
bool is_constant(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(Kind::kBool) && value.as_bool() == wanted;
}
bool test_iterable(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return is_iterable(value);
}
bool is_sequence(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return length_of(value) >= 0 && !value.is(Kind::kView);
}
bool test_callable(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return is_callable(value);
}
template <CharacterClass wanted>
bool has_case(Interpreter& in, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  const TextOf text = in.text_of(value);
  in.heap().charge_characters(2 * text->size());
  return all_characters(*text, wanted);
}
bool is_escaped(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(Kind::kString) && value.get<StringObject>().markup;
}

bool divides(Interpreter& in, const Value& value, const Value& divisor) {
  for (const Value* operand : {&value, &divisor}) {
    if (operand->is(Kind::kUndefined)) fail(operand->get<UndefinedObject>().message);
  }
  return !is_true(modulo_values(in.heap(), value, divisor));
}
template <bool even>
bool is_even(Interpreter& in, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  if (!value.is_number() && !value.is(Kind::kUndefined))
    fail(fmt::format("{} is neither even nor odd", type_name(value)));
  if (even) return divides(in, value, Value::integer(2));
  const Value rest =
      value.is(Kind::kUndefined) ? value : modulo_values(in.heap(), value, Value::integer(2));
  if (rest.is(Kind::kUndefined)) fail(rest.get<UndefinedObject>().message);
  return equal_values(rest, Value::integer(1));
}
bool is_divisible(Interpreter& in, const Value& value, const Arguments& arguments) {
  const Values bound = bind_arguments("divisibleby", arguments, {"num"}, 1);
  return divides(in, value, bound[0]);
}

bool is_same(Interpreter&, const Value& value, const Arguments& arguments) {
  const Value other = one_argument(arguments);
  if (value.kind() != other.kind()) return false;
  return value.holds_object() && !value.is(Kind::kString) ? value.object() == other.object()
                                                          : equal_values(value, other);
}
bool is_in(Interpreter&, const Value& value, const Arguments& arguments) {
  return contains(one_argument(arguments), value);
}
bool is_equal(Interpreter&, const Value& value, const Arguments& arguments) {
  return equal_values(value, one_argument(arguments));
}
bool is_unequal(Interpreter&, const Value& value, const Arguments& arguments) {
  return !equal_values(value, one_argument(arguments));
}
bool less(const Value& a, const Value& b) {
  for (const Value* operand : {&a, &b}) {
    if (operand->is(Kind::kUndefined)) fail(operand->get<UndefinedObject>().message);
  }
  return less_values(a, b);
}
bool is_less(Interpreter&, const Value& value, const Arguments& arguments) {
  return less(value, one_argument(arguments));
}
bool is_greater(Interpreter&, const Value& value, const Arguments& arguments) {
  return less(one_argument(arguments), value);
}
bool is_at_most(Interpreter&, const Value& value, const Arguments& arguments) {
  const Value other = one_argument(arguments);
  return less(value, other) || equal_values(value, other);
}
bool is_at_least(Interpreter&, const Value& value, const Arguments& arguments) {
  const Value other = one_argument(arguments);
  return less(other, value) || equal_values(value, other);
}

bool names_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(Kind::kString) && find_filter(value.text()) != nullptr;
}
bool names_test(Interpreter&, const Value& value, const Arguments& arguments) {
  no_arguments(arguments);
  return value.is(Kind::kString) && find_test(value.text()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", is_defined},
    {"undefined", is_kind<Kind::kUndefined>},
    {"none", is_kind<Kind::kNone>},
    {"string", is_kind<Kind::kString>},
    {"number", is_number},
    {"integer", is_kind<Kind::kInt>},
    {"float", is_kind<Kind::kFloat>},
    {"boolean", is_kind<Kind::kBool>},
    {"true", is_constant<true>},
    {"false", is_constant<false>},
    {"mapping", is_kind<Kind::kDict>},
    {"iterable", test_iterable},
    {"sequence", is_sequence},
    {"callable", test_callable},
    {"lower", has_case<CharacterClass::kLower>},
    {"upper", has_case<CharacterClass::kUpper>},
    {"escaped", is_escaped},
    {"even", is_even<true>},
    {"odd", is_even<false>},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"in", is_in},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"==", is_equal},
    {"ne", is_unequal},
    {"!=", is_unequal},
    {"lt", is_less},
    {"lessthan", is_less},
    {"<", is_less},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {">", is_greater},
    {"le", is_at_most},
    {"<=", is_at_most},
    {"ge", is_at_least},
    {">=", is_at_least},
    {"filter", names_filter},
    {"test", names_test},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  static const std::map<std::string_view, const TestEntry*> kAll = [] {
    std::map<std::string_view, const TestEntry*> all;
    for (const TestEntry& entry : kTests) all.emplace(entry.name, &entry);
    return all;
  }();
  const auto it = kAll.find(name);
  return it == kAll.end() ? nullptr : it->second;
}

}  // namespace slimexx::text::jinja
