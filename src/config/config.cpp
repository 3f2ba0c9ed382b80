#include "slimexx/config/config.h"

#include <algorithm>
#include <set>

#include "config/binder.h"
#include "config/environment.h"
#include "config/hints.h"
#include "config/loader.h"
#include "slimexx/base/url.h"

namespace slimexx::config {

struct Config::Impl {
  explicit Impl(Tree merged) : tree(std::move(merged)), binder(tree) {}

  Tree tree;
  TreeBinder binder;
  FaultList checks;  // faults from add_fault
  std::vector<TakenKey> taken, idle;

  void report_unknown(const Node& node, const std::string& path, const KnownFields& known);
  void report_unknown_key(const Node& node, const std::string& path, const KnownFields& known);
};

namespace {

void collect_leaves(const Node& node, const std::string& path, std::vector<std::string>& leaves) {
  for (const auto& [name, child] : node.members) {
    const std::string child_path = path + "." + name;
    if (child.kind == NodeKind::kMap) {
      collect_leaves(child, child_path, leaves);
    } else {
      leaves.push_back(child_path);
    }
  }
}

}  // namespace

Config::Config(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(Config&&) noexcept = default;
Config::~Config() = default;

Config Config::load(const std::string& path, const std::vector<Override>& overrides) {
  return Config(std::make_unique<Impl>(load_tree(path, overrides)));
}

Config Config::parse(const std::string& yaml, const std::string& name,
                     const std::vector<Override>& overrides) {
  return Config(std::make_unique<Impl>(parse_tree(yaml, name, overrides)));
}

Binder& Config::binder() { return impl_->binder; }

void Config::Impl::report_unknown_key(const Node& node, const std::string& path,
                                      const KnownFields& known) {
  if (const KnownFlag* flag = find_keyless_flag(path, known)) {
    const std::string value = node.kind == NodeKind::kScalar ? node.text : "";
    if (node.kind == NodeKind::kNull || takes_value(*flag, value)) {
      taken.push_back({path, std::string(flag->text)});
      return;
    }
    const FlagRefusal refusal = refuse_flag(*flag, quote_value(value));
    tree.faults.add(
        {tree.describe(node.key_place), path, refusal.reason, refusal.hint, node.key_place});
    return;
  }
  std::vector<std::string> leaves;
  if (node.kind == NodeKind::kMap) collect_leaves(node, path, leaves);
  std::string hint = hint_unknown_key(path, known, binder.sections());
  const std::string inside = hint_unknown_section(leaves, known);
  if (!hint.empty() && !inside.empty()) hint += ' ';
  hint += inside;
  if (hint.empty()) hint = "docs/reference/config.md lists all keys";
  tree.faults.add({tree.describe(node.key_place), path, "there is no such key", std::move(hint),
                   node.key_place});
}

// Visits sections but not fields, whose content (a map of strings, JSON) was read with the field.
// Reports only the name of an unknown section, not its keys.
void Config::Impl::report_unknown(const Node& node, const std::string& path,
                                  const KnownFields& known) {
  for (const auto& [name, child] : node.members) {
    const std::string child_path = path.empty() ? name : path + "." + name;
    if (!child.asked) {
      report_unknown_key(child, child_path, known);
    } else if (binder.find(child_path) == nullptr) {
      report_unknown(child, child_path, known);
    }
  }
}

void Config::finish() {
  impl_->taken = impl_->idle;
  std::vector<FieldInfo> fields;
  for (const BoundField& field : impl_->binder.fields()) fields.push_back(field.info);
  impl_->report_unknown(impl_->tree.root, "", collect_known(std::move(fields)));
  FaultList all = impl_->tree.faults;
  all.append(impl_->checks);
  all.throw_if_any();
}

void Config::add_fault(const std::string& key, const std::string& reason, const std::string& hint) {
  if (has_fault(key)) return;
  const std::string where = origin(key);
  const Node* node = find_path(impl_->tree.root, key);
  impl_->checks.add({where == "default" ? "" : where, key, reason, hint,
                     node == nullptr ? Place{} : node->place});
}

bool Config::has_fault(const std::string& key) const { return impl_->tree.faults.concerns(key); }

const std::vector<TakenKey>& Config::taken_keys() const { return impl_->taken; }

void Config::take_idle(const std::string& path, const std::string& why) {
  impl_->idle.push_back({path, why});
}

void Config::derive(const std::string& path, const DerivedValue& value) {
  impl_->binder.derive(path, std::visit([](const auto& v) { return to_yaml(v); }, value));
}

std::vector<FieldInfo> Config::changed_fields() const {
  std::vector<FieldInfo> changed;
  for (const BoundField& field : impl_->binder.fields())
    if (field.set && field.value != field.info.default_text && !has_fault(field.info.path))
      changed.push_back(field.info);
  return changed;
}

// Files are numbered in reading order: a file comes before its `defaults:`, and overrides are last.
bool Config::is_below(const std::string& path, const std::string& other) const {
  const Node* lower = find_path(impl_->tree.root, path);
  const Node* upper = find_path(impl_->tree.root, other);
  if (lower == nullptr || upper == nullptr || lower->place.file == upper->place.file) return false;
  const auto is_override = [&](const Node* node) {
    return node->place.file == impl_->tree.override_file;
  };
  if (is_override(lower) || is_override(upper)) return is_override(upper);
  return lower->place.file > upper->place.file;
}

bool Config::is_set(const std::string& path) const {
  const BoundField* field = impl_->binder.find(path);
  if (field != nullptr) return field->set;
  const Node* node = find_path(impl_->tree.root, path);
  return node != nullptr && node->kind != NodeKind::kNull;
}

std::string Config::origin(const std::string& path) const {
  if (const BoundField* field = impl_->binder.find(path)) return field->origin;
  const Node* node = find_path(impl_->tree.root, path);
  return node == nullptr || node->kind == NodeKind::kNull ? "default"
                                                          : impl_->tree.describe(node->place);
}

std::string Config::resolved_yaml() const {
  std::vector<std::pair<std::string, std::string>> values;
  std::set<std::string> variables;
  for (const BoundField& field : impl_->binder.fields()) {
    // Show the default: reading the file again would refuse the unused key.
    const bool is_idle = !field.info.meta.may_idle &&
                         std::ranges::count(impl_->idle, field.info.path, &TakenKey::path) > 0;
    const std::string& value = field.shown.empty() ? field.value : field.shown;
    values.emplace_back(field.info.path, is_idle ? field.info.default_text : value);
    if (!is_idle) variables.insert(field.environment.begin(), field.environment.end());
  }
  return environment_comments(variables) + nest_yaml(values);
}

std::string Config::expanded_yaml() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const BoundField& field : impl_->binder.fields())
    values.emplace_back(field.info.path, field.info.meta.is_address
                                             ? to_yaml(hide_secrets(field.value))
                                             : field.value);
  return nest_yaml(values);
}

}  // namespace slimexx::config
