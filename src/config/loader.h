// Loads files with their `defaults:` chains and overrides into one merged, interpolated tree.
#pragma once
#include <string>
#include <vector>

#include "config/tree.h"
#include "slimexx/config/config.h"

namespace slimexx::config {

Tree load_tree(const std::string& path, const std::vector<Override>& overrides);
Tree parse_tree(const std::string& yaml, const std::string& name,
                const std::vector<Override>& overrides);
// Parses without expanding references.
Tree parse_unexpanded(const std::string& yaml, const std::string& name);

}  // namespace slimexx::config
