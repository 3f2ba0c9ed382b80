#include "text/jinja/interpreter.h"

#include <algorithm>
#include <array>

#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

std::string describe_object(const Value& object) {
  if (object.is(Kind::kNone)) return "'None'";
  return fmt::format("'{} object'", type_name(object));
}

bool changes_its_object(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};
  if (object.is(Kind::kList)) return std::find(kList.begin(), kList.end(), name) != kList.end();
  if (object.is(Kind::kDict)) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  return false;
}

}  // namespace

// Returns a missing value if the object has no attribute of that name.
Value Interpreter::own_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) fail(object.get<UndefinedObject>().message);
  const bool dunder =
      name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
  if (dunder || changes_its_object(object, name)) {
    return heap_.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe",
                                       shorten(name), type_name(object)));
  }
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* value = object.get<NamespaceObject>().attributes.dict().find(name);
      return value == nullptr ? Value() : *value;
    }
    case Kind::kLoop:
      return loop_attribute(object, name);
    case Kind::kMacro:
      return macro_attribute(object.get<MacroObject>(), name);
    case Kind::kTuple:
      if (object.get<ListObject>().is_group && (name == "grouper" || name == "list")) {
        return object.items()[name == "list" ? 1 : 0];
      }
      break;
    case Kind::kCycler:
      if (name == "current") {
        const auto& cycler = object.get<CyclerObject>();
        return cycler.items[cycler.position];
      }
      break;
    default:
      break;
  }
  const MethodEntry* method = find_method(object, name);
  if (method == nullptr) return {};
  return {Kind::kMethod, heap_.make<MethodObject>(*method, object)};
}

Value Interpreter::get_own_attribute(const Value& object, std::string_view name) {
  Value value = own_attribute(object, name);
  if (!value.is(Kind::kMissing)) return value;
  return heap_.undefined(
      fmt::format("{} has no attribute '{}'", describe_object(object), shorten(name)));
}

Value Interpreter::get_attribute(const Value& object, std::string_view name, const Value* key) {
  Value value = own_attribute(object, name);
  if (!value.is(Kind::kMissing)) return value;
  if (object.is(Kind::kDict)) {
    if (const Value* item = key != nullptr ? object.dict().find(*key) : object.dict().find(name))
      return *item;
  }
  return heap_.undefined(
      fmt::format("{} has no attribute '{}'", describe_object(object), shorten(name)));
}

Value Interpreter::get_item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail(object.get<UndefinedObject>().message);
  if (object.is(Kind::kDict)) {
    const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict);
    if (const Value* item = hashable ? object.dict().find(key) : nullptr) return *item;
  } else if (key.is_integral()) {
    const int64_t length = object.is(Kind::kView) ? -1 : length_of(object);
    Int index = key.as_int();
    if (index < 0 && length > 0) index += length;
    if (index >= 0 && index < length) {
      if (object.is_sequence()) return object.items()[static_cast<size_t>(index)];
      if (object.is(Kind::kRange)) {
        const auto& range = object.get<RangeObject>();
        return Value::integer(range.start + index * range.step);
      }
      const auto& string = object.get<StringObject>();
      heap_.charge_characters(string.ascii() ? 0 : string.text.size());
      const size_t begin = byte_offset(string, static_cast<int64_t>(index));
      return heap_.string(
          std::string(first_character(std::string_view(string.text).substr(begin))));
    }
  }
  if (key.is(Kind::kString)) {
    Value value = own_attribute(object, key.text());
    if (!value.is(Kind::kMissing)) return value;
  }
  std::string name;
  append_repr(heap_, name, key);
  return heap_.undefined(
      fmt::format("{} has no element {}", describe_object(object), shorten(name)));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  charge(1 + arguments.positional.size() + arguments.keywords.size());
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(callee.get<MacroObject>(), std::move(arguments));
    case Kind::kBuiltin:
      return callee.get<BuiltinObject>().entry.call(*this, arguments);
    case Kind::kMethod:
      return callee.get<MethodObject>().entry.call(*this, callee.get<MethodObject>().self,
                                                   arguments);
    case Kind::kLoop:
      return call_loop(callee, arguments);
    case Kind::kJoiner: {
      auto& joiner = callee.get<JoinerObject>();
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return heap_.string("");
    }
    case Kind::kUndefined:
      fail(callee.get<UndefinedObject>().message);
    default:
      fail(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

Value Interpreter::call_macro(const MacroObject& macro, Arguments arguments) {
  const Level level(*this);
  const Value target = make_activation(macro.function, macro.closure);
  bind_macro(macro, arguments, target.get<Activation>());
  const Switch inside(*this, target);
  Buffer buffer(*this);
  enter_scope(macro.function.entry);
  fill_defaults(macro.function);
  run(macro.function.body);
  return buffer.take();
}

// Binds positional, then keyword arguments; then the special variables caller, kwargs and varargs,
// if the body mentions them.
void Interpreter::bind_macro(const MacroObject& macro, Arguments& arguments, Activation& target) {
  const Function& function = macro.function;
  auto& keywords = arguments.keywords;
  const auto take_keyword = [&](const std::string& name) {
    charge(keywords.size());
    const auto it = std::find_if(keywords.begin(), keywords.end(),
                                 [&](const auto& k) { return k.first == name; });
    if (it == keywords.end()) return Value();
    Value value = std::move(it->second);
    keywords.erase(it);
    return value;
  };
  const size_t given = std::min(arguments.positional.size(), function.parameters.size());
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    target.slots[static_cast<size_t>(parameter.slot)] =
        i < given ? arguments.positional[i] : take_keyword(parameter.name);
  }
  if (function.caller_slot >= 0) {
    Value caller = take_keyword("caller");
    if (caller.is(Kind::kMissing) || caller.is(Kind::kNone))
      caller = heap_.undefined("No caller defined");
    target.slots[static_cast<size_t>(function.caller_slot)] = std::move(caller);
  }
  if (function.kwargs_slot >= 0) {
    Value rest(Kind::kDict, heap_.make<DictObject>());
    for (const auto& [name, value] : keywords) rest.dict().set(heap_.string(name), value);
    target.slots[static_cast<size_t>(function.kwargs_slot)] = std::move(rest);
  } else if (!keywords.empty()) {
    fail(
        fmt::format("macro '{}' takes no keyword argument '{}'", function.name, keywords[0].first));
  }
  Values rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
              arguments.positional.end());
  if (function.varargs_slot >= 0) {
    target.slots[static_cast<size_t>(function.varargs_slot)] = heap_.tuple(std::move(rest));
  } else if (!rest.empty()) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", function.name,
                     function.parameters.size()));
  }
}

void Interpreter::fill_defaults(const Function& function) {
  for (const Parameter& parameter : function.parameters) {
    const SlotRef ref{0, parameter.slot};
    if (!slot(ref).is(Kind::kMissing)) continue;
    if (parameter.default_value != nullptr) {
      Value value = evaluate(*parameter.default_value);
      slot(ref) = std::move(value);
    } else {
      slot(ref) = heap_.undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    }
  }
}

Value Interpreter::macro_attribute(const MacroObject& macro, std::string_view name) {
  const Function& function = macro.function;
  if (name == "name") return heap_.string(function.name);
  if (name == "catch_kwargs") return Value::boolean(function.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::boolean(function.varargs_slot >= 0);
  if (name == "caller") return Value::boolean(function.caller_slot >= 0);
  if (name != "arguments") return {};
  Values names;
  for (const Parameter& parameter : function.parameters)
    names.push_back(heap_.string(parameter.name));
  return heap_.tuple(std::move(names));
}

Value Interpreter::call_loop(const Value& value, const Arguments& arguments) {
  const auto& loop = value.get<LoopObject>();
  if (!loop.statement.recursive) fail("the loop must have the 'recursive' marker to be called");
  const Values bound = bind_arguments("loop", arguments, {"iterable"}, 1);
  if (loop.closure.is(Kind::kMissing)) fail("a loop was called after its end");
  return run_recursive(loop.statement, list_of(bound[0]), loop.depth0 + 1,
                       loop.closure.get<Activation>().parent);
}

Value Interpreter::pull(LoopObject& loop) {
  if (!loop.after.is(Kind::kMissing)) return std::move(loop.after);
  if (!loop.test_pending)
    return loop.next < loop.source.size() ? loop.source[loop.next++] : Value();
  if (loop.closure.is(Kind::kMissing)) return {};
  const Switch inside(*this, loop.closure);
  if (loop.next == 0) enter_scope(loop.statement.test_entry);
  while (loop.next < loop.source.size()) {
    Value item = loop.source[loop.next++];
    assign(*loop.statement.test_target, item);
    if (is_true(evaluate(*loop.statement.test))) return item;
  }
  return {};
}

const Value& Interpreter::peek(LoopObject& loop) {
  if (loop.after.is(Kind::kMissing)) loop.after = pull(loop);
  return loop.after;
}

// A filtered loop must pull all its items to count them.
int64_t Interpreter::loop_length(LoopObject& loop) {
  if (loop.length >= 0) return loop.length;
  const bool peeked = !loop.after.is(Kind::kMissing);
  Value held = std::move(loop.after);
  Values rest;
  for (Value item = pull(loop); !item.is(Kind::kMissing); item = pull(loop))
    rest.push_back(std::move(item));
  loop.after = std::move(held);
  loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (peeked ? 1 : 0);
  loop.source = std::move(rest);
  loop.next = 0;
  loop.test_pending = false;
  return loop.length;
}

Value Interpreter::loop_attribute(const Value& value, std::string_view name) {
  auto& loop = value.get<LoopObject>();
  const auto number = [](int64_t n) { return Value::integer(n); };
  if (name == "index") return number(loop.index0 + 1);
  if (name == "index0") return number(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(peek(loop).is(Kind::kMissing));
  if (name == "length") return number(loop_length(loop));
  if (name == "revindex") return number(loop_length(loop) - loop.index0);
  if (name == "revindex0") return number(loop_length(loop) - loop.index0 - 1);
  if (name == "depth") return number(loop.depth0 + 1);
  if (name == "depth0") return number(loop.depth0);
  if (name == "previtem")
    return loop.index0 == 0 ? heap_.undefined("there is no previous item") : loop.before;
  if (name == "nextitem") {
    const Value& next = peek(loop);
    return next.is(Kind::kMissing) ? heap_.undefined("there is no next item") : next;
  }
  const MethodEntry* method = find_method(value, name);
  return method == nullptr ? Value()
                           : Value(Kind::kMethod, heap_.make<MethodObject>(*method, value));
}

}  // namespace slimexx::text::jinja
