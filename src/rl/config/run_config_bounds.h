// Finds faults of a configuration that involve two numbers.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Pairs of keys where one bounds or excludes the other.
void check_bounds(config::Config& config, const RunConfig& run);
// The same for the learning rate's keys.
void check_trained(config::Config& config, const train::TrainOptions& options);
void check_schedule(config::Config& config, const train::OptimizerOptions& optimizer);

}  // namespace slimexx::rl
