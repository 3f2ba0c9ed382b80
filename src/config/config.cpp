#include "slimexx/config/config.h"

#include <fmt/core.h>

#include "config/binder.h"
#include "config/hints.h"
#include "config/loader.h"

namespace slimexx::config {

struct Config::Impl {
  explicit Impl(Tree merged) : tree(std::move(merged)), binder(tree) {}

  Tree tree;
  TreeBinder binder;
  FaultList validation;

  void report_unknown(const Node& node, const std::string& path);
  void report_unknown_key(const Node& node, const std::string& path);
};

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

void Config::Impl::report_unknown_key(const Node& node, const std::string& path) {
  std::vector<FieldInfo> known;
  for (const BoundField& field : binder.fields()) known.push_back(field.info);
  tree.faults.add({tree.describe(node.key_place), path, "there is no such key",
                   hint_unknown_key(path, known, binder.sections())});
}

// Sections are entered, fields are whole: what is under a map of strings or a JSON field was read
// with it. Of an unknown section only its name is reported.
void Config::Impl::report_unknown(const Node& node, const std::string& path) {
  for (const auto& [name, child] : node.members) {
    const std::string child_path = path.empty() ? name : path + "." + name;
    if (!child.asked) {
      report_unknown_key(child, child_path);
    } else if (binder.find(child_path) == nullptr) {
      report_unknown(child, child_path);
    }
  }
}

void Config::finish() {
  impl_->report_unknown(impl_->tree.root, "");
  impl_->tree.faults.throw_if_any();
}

void Config::add_fault(const std::string& key, const std::string& reason, const std::string& hint) {
  const std::string where = origin(key);
  impl_->validation.add({where == "default" ? "" : where, key, reason, hint});
}

void Config::finish_validation() { impl_->validation.throw_if_any(); }

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
  for (const BoundField& field : impl_->binder.fields())
    values.emplace_back(field.info.path, field.value);
  return nest_yaml(values);
}

std::string Config::describe_origins() const {
  std::string out;
  for (const BoundField& field : impl_->binder.fields())
    out += fmt::format("{} = {}  ({})\n", field.info.path, field.value, field.origin);
  return out;
}

}  // namespace slimexx::config
