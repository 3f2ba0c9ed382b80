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

}  // namespace slimexx::config
