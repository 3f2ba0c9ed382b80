// Values as YAML text that reads back to the same values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/tree.h"

namespace slimexx::config {

using StringMap = std::vector<std::pair<std::string, std::string>>;

std::string to_yaml(int64_t value);
std::string to_yaml(double value);
std::string to_yaml(bool value);
std::string to_yaml(const std::string& value);
std::string to_yaml(const std::optional<int64_t>& value);  // "null" if absent
std::string to_yaml(const std::optional<double>& value);
std::string to_yaml(const std::vector<int64_t>& value);
std::string to_yaml(const std::vector<std::string>& value);
std::string to_yaml(const StringMap& value);
std::string json_to_yaml(const std::string& json);  // of a json_field: "null" if empty

// A node with ${env:...} as they stand in it, as one line of YAML.
std::string unexpanded_yaml(const Node& node);
bool has_environment(const Node& node);

// An address as the resolved configuration shows it: without user, password and query, unless all
// of these come from the environment and stay unexpanded. `text` is unexpanded.
std::string address_to_yaml(const std::string& text);

// The JSON text of whatever stands at `node`. A text that starts with { or [ is taken for JSON
// itself, as slime's flags have it; throws Error if it is malformed, or with the `depth` maps and
// lists around it larger than what a file may hold.
std::string node_to_json(const Node& node, int depth);

// Lays "section.key" -> value lines out as nested sections, in order of first mention.
std::string nest_yaml(const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace slimexx::config
