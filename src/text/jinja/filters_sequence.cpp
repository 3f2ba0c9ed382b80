// Filters on sequences and mappings.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

Value filter_length(Interpreter&, const Value& input, const Arguments& arguments) {
  bind_arguments("length", arguments, {}, 0);
  const int64_t length = length_of(input);
  if (length < 0) fail(fmt::format("object of type '{}' has no len()", type_name(input)));
  return Value::integer(length);
}

Value filter_default(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("default", arguments, {"default_value", "boolean"}, 0);
  if (!input.is(Kind::kUndefined) && !(is_true(bound[1]) && !is_true(input))) return input;
  return bound[0].is(Kind::kMissing) ? in.heap().string("") : bound[0];
}

Value filter_join(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("join", arguments, {"d", "attribute"}, 0);
  Values items = in.list_of(input);
  if (!bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone)) {
    const AttributePath path(in, bound[1]);
    for (Value& item : items) item = path.get(in, item);
  }
  const std::string separator = bound[0].is(Kind::kMissing) ? "" : to_str(in.heap(), bound[0]);
  return join_values(in.heap(), items, separator);
}

Value filter_list(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("list", arguments, {}, 0);
  return in.heap().list(in.list_of(input));
}

Value filter_first(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("first", arguments, {}, 0);
  if (input.is_sequence() && !input.items().empty()) return input.items()[0];
  if (input.is(Kind::kString) && !input.text().empty()) {
    return in.heap().string(std::string(first_character(input.text())));
  }
  const Values items = in.list_of(input);
  return items.empty() ? in.heap().undefined("no first item, sequence was empty") : items[0];
}

void require_reversible(const Value& value) {
  if (value.is(Kind::kIterator))
    fail(fmt::format("'{}' object is not reversible", type_name(value)));
}

Value filter_last(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("last", arguments, {}, 0);
  if (input.is_sequence() && !input.items().empty()) return input.items().back();
  require_reversible(input);
  const Values items = in.list_of(input);
  return items.empty() ? in.heap().undefined("no last item, sequence was empty") : items.back();
}

Value filter_reverse(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("reverse", arguments, {}, 0);
  Values items = in.list_of(input);
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kString)) return join_values(in.heap(), items, "");
  // Only sequences can iterate backwards; other iterables are reversed as a list.
  if (input.is(Kind::kIterator) || input.is(Kind::kUndefined))
    return in.heap().list(std::move(items));
  return in.heap().iterator(std::move(items), "list_reverseiterator");
}

struct SortItem {
  Values keys;
  Value item;
};

std::vector<SortItem> sort_items(Interpreter& in, Values items,
                                 const std::vector<AttributePath>& paths, bool fold, bool reverse) {
  in.heap().check_items(
      saturating_multiply(items.size(), 4));  // the items, the keys and the copy that sort makes
  std::vector<SortItem> out;
  for (Value& item : items) {
    SortItem entry{{}, item};
    for (const AttributePath& path : paths) {
      Value key = path.get(in, item);
      entry.keys.push_back(fold ? fold_case(in, key) : key);
    }
    out.push_back(std::move(entry));
  }
  const auto less = [&](const SortItem& a, const SortItem& b) {
    in.charge(1 + a.keys.size());
    for (size_t i = 0; i < a.keys.size(); ++i) {
      if (!equal_values(a.keys[i], b.keys[i])) return less_values(a.keys[i], b.keys[i]);
    }
    return false;
  };
  std::stable_sort(out.begin(), out.end(), [&](const SortItem& a, const SortItem& b) {
    return reverse ? less(b, a) : less(a, b);
  });
  return out;
}

Value filter_sort(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound =
      bind_arguments("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<AttributePath> paths;
  if (bound[2].is(Kind::kString)) {  // several attributes, separated by commas
    const std::string& names = bound[2].text();
    in.heap().charge_characters(names.size());
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find(',', begin), names.size());
      paths.emplace_back(in, in.heap().string(names.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    paths.emplace_back(in, bound[2]);
  }
  Values out;
  for (auto& entry :
       sort_items(in, in.list_of(input), paths, !is_true(bound[1]), is_true(bound[0]))) {
    out.push_back(std::move(entry.item));
  }
  return in.heap().list(std::move(out));
}

Value filter_dictsort(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound =
      bind_arguments("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = bound[1].is(Kind::kMissing) ? "key" : to_str(in.heap(), bound[1]);
  if (by != "key" && by != "value") fail("you can only sort by either \"key\" or \"value\"");
  if (!input.is(Kind::kDict))
    fail(fmt::format("dictsort needs a mapping, not {}", type_name(input)));
  const Value view(Kind::kView, in.heap().make<ViewObject>(input, ViewKind::kItems));
  const std::vector<AttributePath> paths = {AttributePath(in, Value::integer(by == "key" ? 0 : 1))};
  Values out;
  for (auto& entry :
       sort_items(in, in.list_of(view), paths, !is_true(bound[0]), is_true(bound[2]))) {
    out.push_back(std::move(entry.item));
  }
  return in.heap().list(std::move(out));
}

Value filter_groupby(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound =
      bind_arguments("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(in, bound[0]);
  const bool fold = !is_true(bound[2]);
  Values pairs;  // (key, item)
  const Values items = in.list_of(input);
  for (const Value& item : items) {
    const Value key = path.get(in, item, bound[1]);
    // Sorting would compare undefined keys.
    if (key.is(Kind::kUndefined) && items.size() > 1) fail(key.get<UndefinedObject>().message);
    pairs.push_back(in.heap().tuple({key, item}));
  }
  const std::vector<AttributePath> paths = {AttributePath(in, Value::integer(0))};
  const auto sorted = sort_items(in, std::move(pairs), paths, fold, false);
  Values groups;
  for (size_t begin = 0; begin < sorted.size();) {
    Values members;
    size_t end = begin;
    while (end < sorted.size() && equal_values(sorted[end].keys[0], sorted[begin].keys[0])) {
      members.push_back(sorted[end++].item.items()[1]);
    }
    Value group =
        in.heap().tuple({sorted[begin].item.items()[0], in.heap().list(std::move(members))});
    group.get<ListObject>().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return in.heap().list(std::move(groups));
}

Value filter_unique(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("unique", arguments, {"case_sensitive", "attribute"}, 0);
  const AttributePath path(in, bound[1]);
  DictObject& seen = *in.heap().make<DictObject>();
  const Value owner(Kind::kDict, &seen);
  Values out;
  for (const Value& item : in.list_of(input)) {
    Value key = path.get(in, item);
    if (!is_true(bound[0])) key = fold_case(in, key);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    out.push_back(item);
  }
  return in.heap().iterator(std::move(out));
}

Value filter_items(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("items", arguments, {}, 0);
  if (input.is(Kind::kUndefined)) return in.heap().iterator({});
  if (!input.is(Kind::kDict)) fail("can only get item pairs from a mapping");
  return in.heap().iterator(
      in.list_of({Kind::kView, in.heap().make<ViewObject>(input, ViewKind::kItems)}));
}

Value filter_batch(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = optional_int(bound[0], 0, "batch's size");
  const bool fill = !bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone);
  Values batches, batch;
  const auto flush = [&] {
    batches.push_back(in.heap().list(std::move(batch)));
    batch = Values();
  };
  for (Value& item : in.list_of(input)) {
    if (static_cast<int64_t>(batch.size()) == size) flush();
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    const int64_t missing =
        fill && size > 0 ? std::max<int64_t>(0, size - static_cast<int64_t>(batch.size())) : 0;
    in.heap().check_items(static_cast<uint64_t>(missing));
    batch.insert(batch.end(), static_cast<size_t>(missing), bound[1]);
    flush();
  }
  return in.heap().iterator(std::move(batches));
}

Value filter_slice(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("slice", arguments, {"slices", "fill_with"}, 1);
  const Values items = in.list_of(input);
  const int64_t slices = optional_int(bound[0], 0, "slice's number");
  if (slices == 0) fail("integer division or modulo by zero");
  const bool fill = !bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone);
  const auto size = static_cast<int64_t>(items.size());
  Values out;
  int64_t begin = 0;
  if (slices > 0) in.heap().check_items(saturating_multiply(static_cast<uint64_t>(slices), 4));
  for (int64_t i = 0; i < slices; ++i) {
    in.charge(1);
    const int64_t end = begin + size / slices + (i < size % slices ? 1 : 0);
    Values part(items.begin() + begin, items.begin() + end);
    if (fill && i >= size % slices) part.push_back(bound[1]);
    out.push_back(in.heap().list(std::move(part)));
    begin = end;
  }
  return in.heap().iterator(std::move(out));
}

template <bool largest>
Value filter_extreme(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound =
      bind_arguments(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
  const AttributePath path(in, bound[1]);
  const auto key_of = [&](const Value& item) {
    Value key = path.get(in, item);
    return is_true(bound[0]) ? key : fold_case(in, key);
  };
  const Values items = in.list_of(input);
  if (items.empty()) return in.heap().undefined("no aggregated item, sequence was empty");
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (!(largest ? less_values(best_key, key, ">") : less_values(key, best_key))) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

constexpr FilterEntry kFilters[] = {
    {"length", filter_length}, {"count", filter_length},       {"default", filter_default},
    {"d", filter_default},     {"join", filter_join},          {"list", filter_list},
    {"first", filter_first},   {"last", filter_last},          {"reverse", filter_reverse},
    {"sort", filter_sort},     {"dictsort", filter_dictsort},  {"groupby", filter_groupby},
    {"unique", filter_unique}, {"items", filter_items},        {"batch", filter_batch},
    {"slice", filter_slice},   {"min", filter_extreme<false>}, {"max", filter_extreme<true>},
};

}  // namespace

FilterTable sequence_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace slimexx::text::jinja
