#include "config/binder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "config/interpolate.h"
#include "config/numbers.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

std::string join_choices(const std::vector<std::string>& choices) {
  std::string out;
  for (const auto& choice : choices) out += (out.empty() ? "" : ", ") + choice;
  return out;
}

std::string describe_kind(const Node& node) {
  switch (node.kind) {
    case NodeKind::kNull:
      return "is empty";
    case NodeKind::kScalar:
      return "is the single value " + quote_value(node.text);
    case NodeKind::kSequence:
      return "is a list";
    case NodeKind::kMap:
      return "is a section of keys";
  }
  return "";
}

std::string unit_hint(const FieldMeta& meta, const char* example) {
  if (meta.unit.empty()) return fmt::format("write a number such as {}", example);
  return fmt::format("write a number of {} such as {}", meta.unit, example);
}

std::string format_bound(double bound) {
  return bound == std::floor(bound) && std::fabs(bound) < 1e15
             ? std::to_string(static_cast<int64_t>(bound))
             : format_double(bound);
}

void collect_environment(const Node& node, std::vector<std::string>& names) {
  if (!node.environment.empty())
    for (const std::string& name : split(node.environment, ',')) names.emplace_back(trim(name));
  for (const Node& item : node.items) collect_environment(item, names);
  for (const Member& member : node.members) collect_environment(member.node, names);
}

}  // namespace

const BoundField* TreeBinder::find(const std::string& path) const {
  const auto found = index_.find(path);
  return found == index_.end() ? nullptr : &fields_[found->second];
}

std::string TreeBinder::path_of(const std::string& key) const {
  std::string path;
  for (const auto& part : stack_) path += part + ".";
  return path + key;
}

Node* TreeBinder::lookup(const std::string& key) {
  Node* node = &tree_.root;
  for (const auto& part : stack_)
    if (node != nullptr) node = node->find(part);
  return node == nullptr ? nullptr : node->find(key);
}

void TreeBinder::begin_section(const std::string& name, const std::string&) {
  const std::string path = path_of(name);
  Node* node = lookup(name);
  stack_.push_back(name);
  if (std::find(sections_.begin(), sections_.end(), path) == sections_.end())
    sections_.push_back(path);
  if (node == nullptr) return;
  node->asked = true;
  if (node->kind != NodeKind::kMap && node->kind != NodeKind::kNull)
    fault(*node, path, "is a section, but here it " + describe_kind(*node),
          "write its keys on indented lines below it");
}

void TreeBinder::end_section() {
  SLX_CHECK(!stack_.empty(), "end_section without begin_section");
  stack_.pop_back();
}

void TreeBinder::fault(const Node& node, const std::string& path, std::string reason,
                       std::string hint) {
  if (!node.environment.empty())
    reason += fmt::format(" (from the environment: {})", node.environment);
  tree_.faults.add(
      {tree_.describe(node.place), path, std::move(reason), std::move(hint), node.place});
}

void TreeBinder::record(BoundField field) {
  const bool is_new = index_.emplace(field.info.path, fields_.size()).second;
  SLX_CHECK(is_new, "{} is bound twice", field.info.path);
  fields_.push_back(std::move(field));
}

void TreeBinder::derive(const std::string& path, std::string value) {
  const auto found = index_.find(path);
  SLX_CHECK(found != index_.end(), "{} is not bound", path);
  BoundField& field = fields_[found->second];
  if (field.set) return;
  field.origin = value == field.info.default_text ? "default" : "derived";
  field.value = std::move(value);
}

template <class T, class Read, class Write>
void TreeBinder::bind(const std::string& key, const char* type, T& value, const FieldMeta& meta,
                      Read read, Write write) {
  BoundField bound;
  bound.info = {path_of(key), type, write(value), meta};
  bound.origin = "default";
  if (Node* node = lookup(key)) {
    node->asked = true;
    if (node->kind != NodeKind::kNull) {
      bound.set = true;
      bound.origin = tree_.describe(node->place);
      if (!node->environment.empty()) bound.origin += ", env " + node->environment;
      if (auto parsed = read(*node, bound.info.path)) value = std::move(*parsed);
      check_later(*node, bound.info, write(value));
    }
  }
  bound.value = write(value);
  if (const Node* node = lookup(key); node != nullptr && bound.set) show_unexpanded(*node, bound);
  record(std::move(bound));
}

void TreeBinder::show_unexpanded(const Node& node, BoundField& bound) {
  if (has_environment(node)) {
    bound.shown = unexpanded_yaml(node);
    collect_environment(node, bound.environment);
  }
  if (bound.info.meta.is_address && node.kind == NodeKind::kScalar)
    bound.shown =
        address_to_yaml(node.unexpanded.empty() ? escape_references(node.text) : node.unexpanded);
}

void TreeBinder::check_later(const Node& node, const FieldInfo& info, const std::string& value) {
  if (info.meta.later.empty() || info.meta.is_detail || value == info.default_text) return;
  const bool unset = info.default_text == "null" || info.default_text == "\"\"";
  fault(node, info.path, "planned: " + info.meta.later,
        unset ? "leave it out" : fmt::format("only {} works today", info.default_text));
}

bool TreeBinder::check_range(const Node& node, const std::string& path, const FieldMeta& meta,
                             double value) {
  const bool low = meta.min_exclusive ? value <= meta.min : value < meta.min;
  if (!low && value <= meta.max) return true;
  const char* relation = low ? (meta.min_exclusive ? "greater than" : "at least") : "at most";
  const std::string bound = format_bound(low ? meta.min : meta.max);
  fault(node, path,
        fmt::format("must be {} {}{}{}, but is {}", relation, bound, meta.unit.empty() ? "" : " ",
                    meta.unit, node.text),
        "");
  return false;
}

const std::string* TreeBinder::read_scalar(const Node& node, const std::string& path,
                                           const FieldMeta& meta, const char* type) {
  if (node.kind != NodeKind::kScalar) {
    fault(node, path, fmt::format("must be {}, but {}", type, describe_kind(node)),
          meta.choices.empty() ? "" : "write one of " + join_choices(meta.choices));
    return nullptr;
  }
  return &node.text;
}

std::optional<int64_t> TreeBinder::read_whole(const Node& node, const std::string& path,
                                              const FieldMeta& meta) {
  const std::string* text = read_scalar(node, path, meta, "a whole number");
  if (text == nullptr) return std::nullopt;
  std::string reason;
  const auto value = parse_whole(*text, reason);
  if (!value || node.quoted) {
    fault(node, path,
          value ? "must be a whole number, but is quoted text"
                : fmt::format("must be a whole number, but {}", reason),
          value ? fmt::format("write {} without quotes", *text) : unit_hint(meta, "4096"));
    return std::nullopt;
  }
  if (!check_range(node, path, meta, static_cast<double>(*value))) return std::nullopt;
  return value;
}

std::optional<double> TreeBinder::read_real(const Node& node, const std::string& path,
                                            const FieldMeta& meta) {
  const std::string* text = read_scalar(node, path, meta, "a number");
  if (text == nullptr) return std::nullopt;
  std::string reason;
  const auto value = parse_real(*text, reason);
  if (!value || node.quoted) {
    fault(node, path,
          value ? "must be a number, but is quoted text"
                : fmt::format("must be a number, but {}", reason),
          value ? fmt::format("write {} without quotes", *text) : unit_hint(meta, "1.0e-6"));
    return std::nullopt;
  }
  if (!check_range(node, path, meta, *value)) return std::nullopt;
  return value;
}

std::optional<bool> TreeBinder::read_bool(const Node& node, const std::string& path,
                                          const FieldMeta& meta) {
  const std::string* text = read_scalar(node, path, meta, "true or false");
  if (text == nullptr) return std::nullopt;
  const auto value = parse_bool(*text);
  if (value && !node.quoted) return value;
  fault(node, path, fmt::format("must be true or false, but is {}", quote_value(*text)),
        is_legacy_bool(*text)
            ? "the YAML 1.1 booleans yes/no/on/off are not supported; write true or false"
            : "write true or false, without quotes");
  return std::nullopt;
}

std::optional<std::string> TreeBinder::read_string(const Node& node, const std::string& path,
                                                   const FieldMeta& meta) {
  const std::string* text = read_scalar(node, path, meta, "a string");
  if (text == nullptr) return std::nullopt;
  const auto& choices = meta.choices;
  for (const auto& [refused, why] : meta.refused_choices) {
    if (*text != refused) continue;
    fault(node, path, fmt::format("{} is not one of {}", quote_value(*text), join_choices(choices)),
          why);
    return std::nullopt;
  }
  if (!choices.empty() && std::find(choices.begin(), choices.end(), *text) == choices.end()) {
    const auto nearest = nearest_name(*text, choices);
    fault(node, path, fmt::format("{} is not one of {}", quote_value(*text), join_choices(choices)),
          nearest ? fmt::format("did you mean {}?", *nearest) : "");
    return std::nullopt;
  }
  return *text;
}

template <class T, class Read>
std::optional<std::vector<T>> TreeBinder::read_list(const Node& node, const std::string& path,
                                                    Read read) {
  if (node.kind != NodeKind::kSequence) {
    fault(node, path, "must be a list, but " + describe_kind(node),
          node.kind == NodeKind::kScalar ? fmt::format("write [{}]", to_yaml(node.text))
                                         : "write [first, second]");
    return std::nullopt;
  }
  std::vector<T> values;
  bool good = true;
  for (size_t i = 0; i < node.items.size(); ++i) {
    auto value = read(node.items[i], fmt::format("{}[{}]", path, i));
    good = good && value.has_value();
    if (good) values.push_back(std::move(*value));
  }
  if (!good) return std::nullopt;
  return values;
}

std::optional<StringMap> TreeBinder::read_map(const Node& node, const std::string& path,
                                              const FieldMeta& meta) {
  if (node.kind != NodeKind::kMap) {
    fault(node, path, "must be a mapping, but " + describe_kind(node), "write {name: value}");
    return std::nullopt;
  }
  StringMap values;
  bool good = true;
  for (const auto& [name, child] : node.members) {
    if (child.kind == NodeKind::kNull) continue;  // null clears an entry of a base file
    auto value = read_string(child, path + "." + name, meta);
    good = good && value.has_value();
    if (good) values.emplace_back(name, std::move(*value));
  }
  if (!good) return std::nullopt;
  return values;
}

void TreeBinder::field(const std::string& key, int64_t& value, const FieldMeta& meta) {
  bind(key, "int", value, meta, [&](auto& n, auto& path) { return read_whole(n, path, meta); });
}
void TreeBinder::field(const std::string& key, double& value, const FieldMeta& meta) {
  bind(key, "float", value, meta, [&](auto& n, auto& path) { return read_real(n, path, meta); });
}
void TreeBinder::field(const std::string& key, bool& value, const FieldMeta& meta) {
  bind(key, "bool", value, meta, [&](auto& n, auto& path) { return read_bool(n, path, meta); });
}
void TreeBinder::field(const std::string& key, std::string& value, const FieldMeta& meta) {
  bind(key, "string", value, meta, [&](auto& n, auto& path) { return read_string(n, path, meta); });
}
void TreeBinder::field(const std::string& key, std::optional<int64_t>& value,
                       const FieldMeta& meta) {
  bind(key, "int", value, meta, [&](auto& n, auto& path) { return read_whole(n, path, meta); });
}
void TreeBinder::field(const std::string& key, std::optional<double>& value,
                       const FieldMeta& meta) {
  bind(key, "float", value, meta, [&](auto& n, auto& path) { return read_real(n, path, meta); });
}
void TreeBinder::field(const std::string& key, std::vector<int64_t>& value, const FieldMeta& meta) {
  bind(key, "list of int", value, meta, [&](auto& n, auto& path) {
    return read_list<int64_t>(n, path,
                              [&](auto& item, auto p) { return read_whole(item, p, meta); });
  });
}
void TreeBinder::field(const std::string& key, std::vector<std::string>& value,
                       const FieldMeta& meta) {
  bind(key, "list of string", value, meta, [&](auto& n, auto& path) {
    return read_list<std::string>(n, path,
                                  [&](auto& item, auto p) { return read_string(item, p, meta); });
  });
}
void TreeBinder::field(const std::string& key, StringMap& value, const FieldMeta& meta) {
  bind(key, "map of string", value, meta,
       [&](auto& n, auto& path) { return read_map(n, path, meta); });
}
bool TreeBinder::has_doubtful_value(const Node& node, const std::string& path) {
  bool found = false;
  if (node.kind == NodeKind::kScalar && !node.quoted) {
    if (auto doubt = doubt_plain_value(node.text)) {
      fault(node, path, std::move(doubt->reason), std::move(doubt->hint));
      found = true;
    }
  }
  for (size_t i = 0; i < node.items.size(); ++i)
    found |= has_doubtful_value(node.items[i], fmt::format("{}[{}]", path, i));
  for (const auto& [name, child] : node.members)
    found |= has_doubtful_value(child, path + "." + name);
  return found;
}

void TreeBinder::json_field(const std::string& key, std::string& value, const FieldMeta& meta) {
  const auto read = [&](const Node& node, const std::string& path) -> std::optional<std::string> {
    if (has_doubtful_value(node, path)) return std::nullopt;
    try {
      return node_to_json(node, 1 + static_cast<int>(std::ranges::count(path, '.')));
    } catch (const Error& e) {
      fault(node, path, fmt::format("{} ({})", e.message(), e.where()),
            "write it as YAML, unquoted");
      return std::nullopt;
    }
  };
  bind(key, "JSON", value, meta, read, [](const std::string& v) { return json_to_yaml(v); });
}

}  // namespace slimexx::config
