// The first failure of a run is kept in its own file next to status.json.
#pragma once
#include <string>

namespace slimexx::observe {

std::string first_failure_path(const std::string& run_dir);

}  // namespace slimexx::observe
