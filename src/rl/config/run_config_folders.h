// Faults of a configuration that lie between two of its paths.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Of a run that trains: folders that it writes and that lie in one another, or in what it reads.
void check_folders(config::Config& config, const RunConfig& run);

}  // namespace slimexx::rl
