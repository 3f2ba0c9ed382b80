// Checks whether a model divides by a grid of ranks.
#pragma once
#include "slimexx/dist/nearest_grid.h"
#include "slimexx/model/spec.h"
#include "slimexx/model/stages.h"

namespace slimexx::rl {

// The rule that the model divides by the sizes of a grid. If the pipeline size of the grid is not
// that of `split`, that size must divide the layers, with or without the numbers of layers in
// `split`. The model is borrowed.
dist::GridRule rule_of(const model::ModelSpec& spec, const model::PipelineSplit& split);

// Throws Error(kUsage) unless the model divides by the grid and its layers by the stages. The error
// has the equation, the key and the nearest valid sizes for this number of ranks.
void check_model_grid(const model::ModelSpec& spec, const dist::GridShape& grid,
                      const model::PipelineSplit& split);

}  // namespace slimexx::rl
