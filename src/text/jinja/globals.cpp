// Functions that every template can call: range, namespace, dict, cycler, joiner, and
// transformers' raise_exception and strftime_now.
#include <array>
#include <ctime>

#include "slimexx/base/strings.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace slimexx::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the limit of jinja2's sandbox

Value global_range(Interpreter& in, const Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("range() takes no keyword arguments");
  Values bound = bind_arguments("range", arguments, {"start", "stop", "step"}, 1);
  if (bound[1].is(Kind::kMissing)) std::swap(bound[0], bound[1]);
  for (const Value& bound_value : bound) {
    if (!bound_value.is(Kind::kMissing)) require_int(bound_value, "an argument of range()");
  }
  const int64_t start = optional_int(bound[0], 0, "start"),
                stop = optional_int(bound[1], 0, "stop");
  const int64_t step = optional_int(bound[2], 1, "step");
  if (step == 0) fail("range() arg 3 must not be zero");
  Value range(Kind::kRange, in.heap().make<RangeObject>(start, stop, step));
  if (range.get<RangeObject>().size() > kMaxRange)
    fail(fmt::format("range too big: more than {} elements", kMaxRange));
  return range;
}

// dict(mapping or pairs, **more).
void fill_dict(Interpreter& in, DictObject& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("dict expected at most 1 argument");
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kDict)) {
      in.charge(source.dict().entries.size());
      for (const auto& [key, value] : source.dict().entries) dict.set(key, value);
      continue;
    }
    for (const Value& pair : in.list_of(source)) {
      const Values both = in.list_of(pair);
      if (both.size() != 2) fail("dict() needs pairs");
      dict.set(both[0], both[1]);
    }
  }
  for (const auto& [key, value] : arguments.keywords) dict.set(in.heap().string(key), value);
  in.heap().check_live();
}

Value global_dict(Interpreter& in, const Arguments& arguments) {
  Value dict(Kind::kDict, in.heap().make<DictObject>());
  fill_dict(in, dict.dict(), arguments);
  return dict;
}

Value global_namespace(Interpreter& in, const Arguments& arguments) {
  Value space(Kind::kNamespace, in.heap().make<NamespaceObject>());
  in.heap().keep(Kind::kNamespace, space.object());
  auto& attributes = space.get<NamespaceObject>().attributes.dict();
  fill_dict(in, attributes, arguments);
  for (const auto& [name, value] : attributes.entries) {
    if (name.is(Kind::kString) && !name.text().empty() && name.text()[0] == '_') {
      fail(fmt::format("an attribute of a namespace must not begin with an underscore: '{}'",
                       name.text()));
    }
  }
  return space;
}

Value global_raise_exception(Interpreter& in, const Arguments& arguments) {
  const Values bound = bind_arguments("raise_exception", arguments, {"message"}, 1);
  fail(to_str(in.heap(), bound[0]));
}

Value global_strftime_now(Interpreter& in, const Arguments& arguments) {
  const Values bound = bind_arguments("strftime_now", arguments, {"format"}, 1);
  if (!bound[0].is(Kind::kString)) fail("strftime_now() needs a string");
  const std::string& format = bound[0].text();
  constexpr size_t kMaxFormat = 1000, kMaxExpansion = 64;
  if (format.size() > kMaxFormat) fail("the format of strftime_now() is too long");
  in.charge(64 + 16 * format.size());
  const std::time_t now = in.now();
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) fail("the clock is out of range");
  // The added trailing space tells an empty result from a full buffer.
  std::string text(format.size() * kMaxExpansion + 2, '\0');
  const size_t n = std::strftime(text.data(), text.size(), (format + " ").c_str(), &local);
  if (n == 0) fail("the result of strftime_now() is too long");
  text.resize(n - 1);
  return in.heap().string(replace_invalid_utf8(text));
}

Value global_cycler(Interpreter& in, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.keywords.empty())
    fail("at least one item has to be provided");
  return {Kind::kCycler, in.heap().make<CyclerObject>(arguments.positional)};
}

Value global_joiner(Interpreter& in, const Arguments& arguments) {
  Values bound = bind_arguments("joiner", arguments, {"sep"}, 0);
  if (bound[0].is(Kind::kMissing)) bound[0] = in.heap().string(", ");
  return {Kind::kJoiner, in.heap().make<JoinerObject>(bound[0])};
}

constexpr BuiltinEntry kGlobals[] = {
    {"range", global_range},         {"dict", global_dict},
    {"namespace", global_namespace}, {"raise_exception", global_raise_exception},
    {"cycler", global_cycler},       {"strftime_now", global_strftime_now},
    {"joiner", global_joiner},
};

}  // namespace

const BuiltinEntry* find_builtin(std::string_view name) {
  for (const BuiltinEntry& entry : kGlobals) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace slimexx::text::jinja
