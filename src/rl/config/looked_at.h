// Finds keys that are set but have no effect (config::FieldMeta::when).
#pragma once
#include <string>

#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Adds a fault for every key of `config` that differs from its default but has no effect in `run`.
// Keys that may be idle (FieldMeta::may_idle) become taken keys instead: the run accepts and lists
// them.
void check_looked_at(config::Config& config, const RunConfig& run);

// Whether `when` is a known value of FieldMeta::when.
bool is_condition(const std::string& when);

}  // namespace slimexx::rl
