// Faults of a configuration that lie between two numbers.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Pairs of keys of which one bounds, or excludes, the other.
void check_bounds(config::Config& config, const RunConfig& run);
// The learning rate's.
void check_trained(config::Config& config, const train::TrainOptions& options);
void check_schedule(config::Config& config, const train::OptimizerOptions& optimizer);

}  // namespace slimexx::rl
