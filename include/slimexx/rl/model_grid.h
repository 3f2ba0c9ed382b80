// Whether a model divides by a grid of ranks.
#pragma once
#include "slimexx/dist/nearest_grid.h"
#include "slimexx/model/spec.h"
#include "slimexx/model/stages.h"

namespace slimexx::rl {

// Sizes that the model divides by; where they have other pipeline stages than the split, its layers
// divide by these, with the split's numbers of layers or without. The model is borrowed.
dist::GridRule rule_of(const model::ModelSpec& spec, const model::PipelineSplit& split);

// Throws Error(kUsage) with the equation, the key and the nearest sizes that would do on so many
// ranks, unless the model divides by the grid and its layers by the stages.
void check_model_grid(const model::ModelSpec& spec, const dist::GridShape& grid,
                      const model::PipelineSplit& split);

}  // namespace slimexx::rl
