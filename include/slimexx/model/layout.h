// How a model's parameters are sharded over a grid: for each rank, its ParameterInfos narrowed to
// its shard. Loading, export, checkpoints and weight plans treat these infos like unsharded ones,
// since the parts still map elements to boxes of tensors on disk.
#pragma once
#include <memory>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/parameters.h"

namespace slimexx::model {

struct Layout {
  // By rank of the grid; ranks with equal shards share one list.
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
