// Methods of dicts, lists, loops, cyclers and numbers; bound arguments; method lookup.
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace slimexx::text::jinja {

Values bind_arguments(std::string_view callee, const Arguments& arguments,
                      std::initializer_list<std::string_view> names, size_t required) {
  Values bound(names.size());
  if (arguments.positional.size() > names.size()) {
    fail(fmt::format("{}() takes at most {} argument(s), {} given", callee, names.size(),
                     arguments.positional.size()));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [key, value] : arguments.keywords) {
    const auto it = std::find(names.begin(), names.end(), key);
    if (it == names.end())
      fail(fmt::format("{}() got an unexpected keyword argument '{}'", callee, key));
    Value& slot = bound[static_cast<size_t>(it - names.begin())];
    if (!slot.is(Kind::kMissing))
      fail(fmt::format("{}() got multiple values for argument '{}'", callee, key));
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].is(Kind::kMissing))
      fail(fmt::format("{}() lacks its argument '{}'", callee, *(names.begin() + i)));
  }
  return bound;
}

namespace {

Value make_view(Interpreter& in, const Value& self, ViewKind kind, const Arguments& arguments) {
  bind_arguments("view", arguments, {}, 0);
  return {Kind::kView, in.heap().make<ViewObject>(self, kind)};
}
Value dict_items(Interpreter& in, const Value& self, const Arguments& a) {
  return make_view(in, self, ViewKind::kItems, a);
}
Value dict_keys(Interpreter& in, const Value& self, const Arguments& a) {
  return make_view(in, self, ViewKind::kKeys, a);
}
Value dict_values(Interpreter& in, const Value& self, const Arguments& a) {
  return make_view(in, self, ViewKind::kValues, a);
}

Value dict_get(Interpreter&, const Value& self, const Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("dict.get() takes no keyword arguments");
  const Values bound = bind_arguments("get", arguments, {"key", "default"}, 1);
  const Value* value = self.dict().find(bound[0]);
  if (value != nullptr) return *value;
  return bound[1].is(Kind::kMissing) ? Value::none() : bound[1];
}

Value copy_self(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("copy", arguments, {}, 0);
  return self;  // immutable
}

Value sequence_count(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("count", arguments, {"value"}, 1);
  in.charge(self.items().size());
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(),
                    [&](const Value& item) { return equal_values(item, bound[0]); }));
}

Value sequence_index(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("index", arguments, {"value", "start", "stop"}, 1);
  const int64_t size = length_of(self);
  const auto clip = [&](const Value& bound_value, int64_t fallback) {
    const int64_t i = optional_int(bound_value, fallback, "index");
    return std::clamp(i < 0 ? i + size : i, int64_t{0}, size);
  };
  in.charge(self.items().size());
  for (int64_t i = clip(bound[1], 0); i < clip(bound[2], size); ++i) {
    if (equal_values(self.items()[static_cast<size_t>(i)], bound[0])) return Value::integer(i);
  }
  fail("the value is not in the list");
}

Value float_is_integer(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("is_integer", arguments, {}, 0);
  return Value::boolean(self.as_double() == std::floor(self.as_double()));
}

Value int_bit_length(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("bit_length", arguments, {}, 0);
  const auto value = static_cast<unsigned __int128>(self.as_int());
  int bits = 0;
  for (auto rest = self.as_int() < 0 ? -value : value; rest != 0; rest >>= 1) ++bits;
  return Value::integer(bits);
}

Value loop_cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("no items for cycling given");
  const auto index = static_cast<uint64_t>(self.get<LoopObject>().index0);
  return arguments.positional[index % arguments.positional.size()];
}

Value loop_changed(Interpreter& in, const Value& self, const Arguments& arguments) {
  auto& loop = self.get<LoopObject>();
  Value now = in.heap().tuple(arguments.positional);
  const bool changed =
      loop.last_changed.is(Kind::kMissing) || !equal_values(loop.last_changed, now);
  // A loop that has ended is not cleared again, so it must not keep this value, which could be the
  // loop itself.
  if (!loop.closure.is(Kind::kMissing)) loop.last_changed = std::move(now);
  return Value::boolean(changed);
}

Value cycler_next(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("next", arguments, {}, 0);
  auto& cycler = self.get<CyclerObject>();
  Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}

Value cycler_reset(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("reset", arguments, {}, 0);
  self.get<CyclerObject>().position = 0;
  return Value::none();
}

constexpr MethodEntry kDictMethods[] = {{"items", dict_items},
                                        {"keys", dict_keys},
                                        {"values", dict_values},
                                        {"get", dict_get},
                                        {"copy", copy_self}};
constexpr MethodEntry kListMethods[] = {
    {"count", sequence_count}, {"index", sequence_index}, {"copy", copy_self}};
constexpr MethodEntry kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kFloatMethods[] = {{"is_integer", float_is_integer}};
constexpr MethodEntry kIntMethods[] = {{"bit_length", int_bit_length}};
constexpr MethodEntry kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
constexpr MethodEntry kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

template <size_t n>
const MethodEntry* find_in(const MethodEntry (&table)[n], std::string_view name) {
  const auto* it =
      std::find_if(table, table + n, [&](const MethodEntry& entry) { return name == entry.name; });
  return it == table + n ? nullptr : it;
}

}  // namespace

const MethodEntry* find_method(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
      return find_in(kTupleMethods, name);
    case Kind::kFloat:
      return find_in(kFloatMethods, name);
    case Kind::kBool:
    case Kind::kInt:
      return find_in(kIntMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    case Kind::kCycler:
      return find_in(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace slimexx::text::jinja
