// Files, their `defaults:` chains and overrides -> one merged, interpolated tree.
#pragma once
#include <string>
#include <vector>

#include "config/tree.h"
#include "slimexx/config/config.h"

namespace slimexx::config {

Tree load_tree(const std::string& path, const std::vector<Override>& overrides);
Tree parse_tree(const std::string& yaml, const std::string& name,
                const std::vector<Override>& overrides);
// With references as they stand.
Tree parse_unexpanded(const std::string& yaml, const std::string& name);

}  // namespace slimexx::config
