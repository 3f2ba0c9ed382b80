// The differences between two resolved configurations.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "config/emit.h"
#include "config/environment.h"
#include "config/loader.h"
#include "config/tree.h"
#include "slimexx/config/config.h"

namespace slimexx::config {
namespace {

struct Setting {
  std::string key, value;
};

std::string value_text(const Node& node) {
  if (node.kind == NodeKind::kNull) return "null";
  if (node.kind == NodeKind::kScalar && !node.text.empty()) return node.text;
  return node_to_json(node, 0);
}

// Maps are sections; values that are not maps are leaves.
void flatten(const Node& node, const std::string& key, std::vector<Setting>& out) {
  if (node.kind != NodeKind::kMap || node.members.empty())
    return out.push_back({key, value_text(node)});
  for (const auto& [name, child] : node.members)
    flatten(child, key.empty() ? name : key + "." + name, out);
}

std::vector<Setting> read_settings(const std::string& yaml, const std::string& name) {
  const Tree tree = parse_unexpanded(yaml, name);
  std::vector<Setting> settings;
  if (tree.root.kind == NodeKind::kMap && !tree.root.members.empty())
    flatten(tree.root, "", settings);
  return settings;
}

std::string value_of(const std::vector<Setting>& settings, const std::string& key) {
  const auto it = std::ranges::find(settings, key, &Setting::key);
  return it == settings.end() ? "" : it->value;
}

// The variables that both texts name with different digests.
std::set<std::string> changed_variables(const std::string& before, const std::string& after) {
  const auto earlier = read_environment_comments(before);
  std::set<std::string> names;
  for (const auto& [name, digest] : read_environment_comments(after)) {
    const auto found = earlier.find(name);
    if (found != earlier.end() && found->second != digest) names.insert(name);
  }
  return names;
}

// The first of `variables` that the value refers to; empty if there is none.
std::string named_variable(const std::string& value, const std::set<std::string>& variables) {
  for (const std::string& name : variables)
    for (const char* end : {"}", ":-"}) {
      const size_t at = value.find("${env:" + name + end);
      const bool is_literal = at != std::string::npos && at > 0 && value[at - 1] == '$';
      if (at != std::string::npos && !is_literal) return name;
    }
  return "";
}

}  // namespace

std::vector<SettingChange> list_changes(const std::string& before, const std::string& after) {
  const auto a = read_settings(before, "the earlier configuration");
  const auto b = read_settings(after, "the configuration");
  const std::set<std::string> variables = changed_variables(before, after);
  std::vector<SettingChange> changes;
  for (const auto& [key, value] : b) {
    const std::string earlier = value_of(a, key);
    const std::string variable = earlier == value ? named_variable(value, variables) : "";
    if (!variable.empty())
      changes.push_back({key, value, fmt::format("{} with another value of {}", value, variable)});
    else if (earlier != value)
      changes.push_back({key, earlier, value});
  }
  for (const auto& [key, value] : a) {
    if (value_of(b, key).empty()) changes.push_back({key, value, ""});
  }
  return changes;
}

}  // namespace slimexx::config
