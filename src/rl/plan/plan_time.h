// Duration of the phases of a rollout, from measured rates.
#pragma once
#include "slimexx/rl/plan.h"

namespace slimexx::rl {

// Fills plan.phases; plan.stages must be filled.
void plan_phases(const PlanRequest& request, RunPlan& plan);

}  // namespace slimexx::rl
