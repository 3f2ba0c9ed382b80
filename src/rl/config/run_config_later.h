// Keys of planned features: known and checked, but refused if they ask for the feature.
#pragma once
#include "slimexx/config/config.h"

namespace slimexx::rl {

void bind_later_rollout(config::Binder& binder);  // within the section rollout

}  // namespace slimexx::rl
