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
std::string json_to_yaml(const std::string& json);  // for a json_field; "null" if empty

// A node as one line of YAML, with ${env:...} unexpanded.
std::string unexpanded_yaml(const Node& node);
bool has_environment(const Node& node);

// An address for the resolved configuration. Omits user, password and query unless all of them come
// from the environment and stay unexpanded. `text` is unexpanded.
std::string address_to_yaml(const std::string& text);

// `node` as JSON text. A scalar that starts with { or [ is parsed as JSON, as in slime's flags.
// Throws Error if the JSON is malformed or exceeds the limits of a file; `depth` counts the maps
// and lists around it.
std::string node_to_json(const Node& node, int depth);

// Writes "section.key" -> value pairs as nested sections, in order of first mention.
std::string nest_yaml(const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace slimexx::config
