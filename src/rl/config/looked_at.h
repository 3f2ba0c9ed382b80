// Keys that are set while nothing looks at them (config::FieldMeta::when).
#pragma once
#include <string>

#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Adds a fault for every key of `config` that is set to another value than its default and is not
// looked at in `run`; those that may stand idle become taken keys, which the run names.
void check_looked_at(config::Config& config, const RunConfig& run);

// Whether FieldMeta::when of some key may say so.
bool is_condition(const std::string& when);

}  // namespace slimexx::rl
