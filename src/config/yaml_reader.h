// Parses YAML text to a Node with yaml-cpp's event parser and the limits of tree.h. Refuses some
// things that yaml-cpp accepts: duplicate keys, `<<`, tags, several documents.
#pragma once
#include <cstdint>
#include <string>

#include "config/tree.h"

namespace slimexx::config {

// Reads `text` as file number `file` of `tree`. Adds recoverable faults to tree.faults and throws
// others. A text without content is an empty map.
Node read_yaml(Tree& tree, int32_t file, const std::string& text);

// Reads the value of --set key=value; `key` is for messages.
Node read_override_value(Tree& tree, int32_t file, const std::string& key,
                         const std::string& value);

}  // namespace slimexx::config
