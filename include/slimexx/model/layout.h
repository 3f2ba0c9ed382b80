// What the ranks of a grid hold of a model's parameters, as data: a rank's ParameterInfos, each
// narrowed to its shard. Loading, export, checkpoints and weight plans take them as they take the
// whole ones: the parts still say which boxes of which tensors on disk the elements are.
#pragma once
#include <memory>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/parameters.h"

namespace slimexx::model {

struct Layout {
  // By rank of the grid; ranks that hold the same share one list.
  std::vector<std::shared_ptr<const std::vector<ParameterInfo>>> ranks;
};

// The shard of a parameter at one position of the grid. Throws Error(kUsage) naming the parameter
// and the sizes if the grid does not divide it.
ParameterInfo narrow(const ParameterInfo& info, const dist::GridSizes& sizes,
                     const dist::GridPosition& position);

// `stages` are the parameters of each pipeline stage, grid.sizes().pp of them.
Layout make_layout(const std::vector<std::vector<ParameterInfo>>& stages,
                   const dist::GridShape& grid);

}  // namespace slimexx::model
