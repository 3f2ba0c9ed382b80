// The section `rl` of the configuration.
#pragma once
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

void bind(config::Binder& binder, RlOptions& options);

}  // namespace slimexx::rl
