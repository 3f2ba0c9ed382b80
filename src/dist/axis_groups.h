// The Collective of each axis of a grid, for one rank.
#pragma once
#include <array>
#include <functional>

#include "slimexx/dist/process_grid.h"

namespace slimexx::dist {

using AxisGroups = std::array<Collective*, kNumGridAxes>;

// Axes with the same ranks share one group: `one` for a single rank, `world` for all ranks,
// otherwise the result of `make` for the first of these axes.
AxisGroups make_axis_groups(const GridShape& shape, Collective& one, Collective& world,
                            const std::function<Collective*(GridAxis)>& make);
Groups to_groups(Collective& world, const AxisGroups& axes);

}  // namespace slimexx::dist
