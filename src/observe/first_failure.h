// The first cause of a run's failure, which stays in a file of its own beside status.json.
#pragma once
#include <string>

namespace slimexx::observe {

std::string first_failure_path(const std::string& run_dir);

}  // namespace slimexx::observe
