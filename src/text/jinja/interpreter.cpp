#include "text/jinja/interpreter.h"

#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"

namespace slimexx::text::jinja {

Interpreter::Interpreter(const Program& program, const TemplateLimits& limits,
                         const std::function<int64_t()>& clock)
    : program_(program),
      clock_(clock),
      max_depth_(limits.max_depth),
      heap_(limits.max_output_bytes, limits.max_work),
      strings_(program.strings.size()) {}

namespace {

constexpr size_t kMaxMessageBytes =
    900;  // a template may raise megabytes; an Error holds 1000 bytes
constexpr const char* kFaultHint =
    "check that the messages (and tools) have what the template reads, or fix the template";

}  // namespace

RenderedText Interpreter::render(const Json& variables, const Json& defaults) {
  try {
    variables_ = Value(Kind::kDict, heap_.make<DictObject>());
    for (const Json* source : {&defaults, &variables}) {
      for (const auto& [name, value] : source->items()) {
        variables_.dict().set(heap_.string(name), convert(value, 1));
      }
    }
    heap_.begin_limits();
    current_ = make_activation(program_.root, Value());
    enter_scope(program_.root.entry);
    run(program_.root.body);
  } catch (const Fault& fault) {
    throw Error(ErrorCode::kInput, shorten(fault.message, kMaxMessageBytes),
                fault.hint.empty() ? kFaultHint : fault.hint,
                fmt::format("{}: line {}", program_.where, line_));
  }
  return {std::move(output_.text), std::move(output_.spans)};
}

// The limits do not apply to the caller's variables, only to values that the template makes.
Value Interpreter::convert(const Json& json, int depth) {
  if (depth > kMaxContainerDepth) fail("the variables are nested too deeply");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(Int{json.get<uint64_t>()});
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return {Kind::kString,
              heap_.make<StringObject>(is_valid_utf8(text) ? text : replace_invalid_utf8(text))};
    }
    case Json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(convert(item, depth + 1));
      return {Kind::kList, heap_.make<ListObject>(std::move(items))};
    }
    case Json::value_t::object: {
      Value dict(Kind::kDict, heap_.make<DictObject>());
      for (const auto& [key, value] : json.items()) {
        dict.dict().set({Kind::kString, heap_.make<StringObject>(replace_invalid_utf8(key))},
                        convert(value, depth + 1));
      }
      return dict;
    }
    default:
      return Value::none();
  }
}

Value Interpreter::constant_string(int index) {
  Value& value = strings_[static_cast<size_t>(index)];
  if (value.is(Kind::kMissing)) value = heap_.string(program_.strings[static_cast<size_t>(index)]);
  return value;
}

void Interpreter::write(std::string_view text) {
  heap_.check_size(out_->text.size() + text.size());
  heap_.charge_bytes(text.size());
  out_->text += text;
  count_written(text.size());
}

void Interpreter::count_written(uint64_t bytes) {
  heap_.grow(bytes);
  out_->counted_bytes += bytes;
}

void Interpreter::add_span(int64_t begin, int64_t end) {
  out_->spans.emplace_back(begin, end);
  heap_.charge(1);
  count_written(2 * sizeof(out_->spans[0]));  // twice, since the vector may reserve that much
  heap_.check_live();
}

void Interpreter::write(const Value& value) {
  if (!value.is(Kind::kString)) {
    const size_t before = out_->text.size();
    append_str(heap_, out_->text, value);
    count_written(out_->text.size() - before);
    return;
  }
  const auto& string = value.get<StringObject>();
  const auto begin = static_cast<int64_t>(out_->text.size());
  write(string.text);
  if (out_->generating) return;
  for (const auto& [from, to] : string.spans) add_span(begin + from, begin + to);
}

Values Interpreter::list_of(const Value& value) { return iterate(heap_, value); }

TextOf Interpreter::text_of(const Value& value) {
  TextOf text(heap_, value);
  heap_.charge_bytes(text->size());
  return text;
}

Activation& Interpreter::activation(int hops) const {
  const Value* where = &current_;
  for (; hops > 0; --hops) where = &where->get<Activation>().parent;
  return where->get<Activation>();
}

Value& Interpreter::slot(const SlotRef& ref) const {
  return activation(ref.hops).slots[static_cast<size_t>(ref.slot)];
}

Value Interpreter::read(const Expr& name) {
  const Value& value = slot(name.ref);
  return value.is(Kind::kMissing) ? heap_.undefined_name(name.name) : value;
}

Value Interpreter::lookup_variable(const std::string& name) {
  if (const Value* value = variables_.dict().find(name)) return *value;
  if (const BuiltinEntry* builtin = find_builtin(name)) {
    return {Kind::kBuiltin, heap_.make<BuiltinObject>(*builtin)};
  }
  return {};
}

void Interpreter::enter_scope(const ScopeEntry& entry) {
  for (const SlotLoad& load : entry) {
    Value value;
    if (load.source == SlotLoad::Source::kOuter) value = slot(load.outer);
    if (load.source == SlotLoad::Source::kContext) value = lookup_variable(load.name);
    slot({0, load.slot}) = std::move(value);
  }
  charge(entry.size());
}

void Interpreter::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    slot(target.ref) = value;
    return;
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    const Value holder = slot(target.ref);
    if (!holder.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
    const Value name = constant_string(target.string_index);
    if (name.text().front() == '_')
      fail("an attribute of a namespace must not begin with an underscore");
    holder.get<NamespaceObject>().attributes.dict().set(name, value);
    heap_.check_live();
    return;
  }
  const Values items = list_of(value);
  if (items.size() != target.args.size()) {
    fail(fmt::format("cannot unpack {} values into {} names", items.size(), target.args.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.args[i], items[i]);
}

Value Interpreter::make_activation(const Function& function, const Value& parent) {
  charge(static_cast<uint64_t>(function.slot_count));
  Value value(Kind::kActivation, heap_.make<Activation>(function, parent));
  heap_.check_live();
  if (function.captured) heap_.keep(Kind::kActivation, value.object());
  return value;
}

}  // namespace slimexx::text::jinja
