// Adds faults of a configuration that involve two keys.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Pairs of keys where one bounds or excludes the other.
void check_bounds(config::Config& config, const RunConfig& run);
// The same for the keys that select trained parameters, for what numerics.fp8: rollout_only needs,
// and for the keys of the learning rate.
void check_trained(config::Config& config, const train::TrainOptions& options);
void check_fp8(config::Config& config, const RunConfig& run);
void check_schedule(config::Config& config, const train::OptimizerOptions& optimizer);

}  // namespace slimexx::rl
