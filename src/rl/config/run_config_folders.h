// Finds faults of a configuration that involve two of its paths.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// For training runs: a folder that is written must not lie in, or contain, another folder that is
// written or read.
void check_folders(config::Config& config, const RunConfig& run);

}  // namespace slimexx::rl
