// How long the phases of a rollout take, by rates that were measured.
#pragma once
#include "slimexx/rl/plan.h"

namespace slimexx::rl {

// Fills plan.phases; needs the stages.
void plan_phases(const PlanRequest& request, RunPlan& plan);

}  // namespace slimexx::rl
