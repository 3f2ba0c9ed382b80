// Adds faults of a configuration that involve two keys.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Checks pairs of keys where one bounds or excludes the other.
void check_bounds(config::Config& config, const RunConfig& run);
// Check the keys that select trained parameters, and those of the learning rate.
void check_trained(config::Config& config, const train::TrainOptions& options);
void check_schedule(config::Config& config, const train::OptimizerOptions& optimizer);

}  // namespace slimexx::rl
