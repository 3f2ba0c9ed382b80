// map, select and similar filters, attribute paths, and the lookup of filters.
#include <algorithm>
#include <map>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {

AttributePath::AttributePath(Interpreter& in, const Value& attribute) {
  if (attribute.is(Kind::kMissing) || attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kString)) {
    keys.push_back(attribute);
    return;
  }
  const std::string& path = attribute.text();
  in.heap().charge_characters(4 * path.size());
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const auto number =
        all_characters(part, CharacterClass::kDecimal) ? parse_python_int(part, 10) : std::nullopt;
    keys.push_back(number ? Value::integer(*number) : in.heap().string(part));
    begin = end + 1;
  }
}

Value AttributePath::get(Interpreter& in, Value item, const Value& fallback) const {
  in.charge(1 + keys.size());
  const bool has_fallback = !fallback.is(Kind::kMissing) && !fallback.is(Kind::kNone);
  for (const Value& key : keys) {
    item = in.get_item(item, key);
    if (has_fallback && item.is(Kind::kUndefined)) item = fallback;
  }
  return item;
}

Value fold_case(Interpreter& in, const Value& value) {
  if (!value.is(Kind::kString)) return value;
  in.heap().charge_characters(2 * value.text().size());
  return in.heap().string(lower_case(value.text()));
}

namespace {

Arguments drop_first(const Arguments& arguments, size_t n) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(n),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

const std::string& require_name(const Value& value, const char* what) {
  if (!value.is(Kind::kString)) fail(fmt::format("the name of a {} must be a string", what));
  return value.text();
}

Value map_attribute(Interpreter& in, const Value& input, const Arguments& arguments) {
  Value attribute, fallback;
  for (const auto& [name, value] : arguments.keywords) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      fail(fmt::format("map: unexpected keyword argument '{}'", name));
    }
  }
  if (attribute.is(Kind::kMissing)) fail("map requires a filter argument");
  const AttributePath path(in, attribute);
  Values out;
  for (const Value& item : in.list_of(input)) out.push_back(path.get(in, item, fallback));
  return in.heap().iterator(std::move(out));
}

Value filter_map(Interpreter& in, const Value& input, const Arguments& arguments) {
  if (!is_true(input) && !is_iterable(input)) return in.heap().iterator({});
  if (arguments.positional.empty()) return map_attribute(in, input, arguments);
  const std::string& name = require_name(arguments.positional[0], "filter");
  const Arguments rest = drop_first(arguments, 1);
  Values out;
  for (const Value& item : in.list_of(input)) out.push_back(in.apply_filter(name, item, rest));
  return in.heap().iterator(std::move(out));
}

template <bool wanted, bool by_attribute>
Value filter_select(Interpreter& in, const Value& input, const Arguments& arguments) {
  if (!is_true(input) && !is_iterable(input)) return in.heap().iterator({});
  const size_t offset = by_attribute ? 1 : 0;
  const auto& positional = arguments.positional;
  if (positional.size() < offset) fail("missing parameter for attribute name");
  const AttributePath path(in, by_attribute ? positional[0] : Value());
  const bool tested = positional.size() > offset;
  const std::string name = tested ? require_name(positional[offset], "test") : "";
  const Arguments rest = tested ? drop_first(arguments, offset + 1) : Arguments{};
  Values out;
  for (const Value& item : in.list_of(input)) {
    const Value value = path.get(in, item);
    const bool holds = tested ? in.apply_test(name, value, rest) : is_true(value);
    if (holds == wanted) out.push_back(item);
  }
  return in.heap().iterator(std::move(out));
}

Value filter_attr(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("attr", arguments, {"name"}, 1);
  return in.get_own_attribute(input, *in.text_of(bound[0]));
}

constexpr FilterEntry kFilters[] = {
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
    {"attr", filter_attr},
};

}  // namespace

FilterTable selection_filters() { return {kFilters, std::size(kFilters)}; }

const FilterEntry* find_filter(std::string_view name) {
  static const std::map<std::string_view, const FilterEntry*> kAll = [] {
    std::map<std::string_view, const FilterEntry*> all;
    for (const FilterTable& table :
         {text_filters(), sequence_filters(), selection_filters(), number_filters()}) {
      for (size_t i = 0; i < table.second; ++i) all.emplace(table.first[i].name, &table.first[i]);
    }
    return all;
  }();
  const auto it = kAll.find(name);
  return it == kAll.end() ? nullptr : it->second;
}

}  // namespace slimexx::text::jinja
