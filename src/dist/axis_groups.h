// One Collective for each axis of a grid, of one rank.
#pragma once
#include <array>
#include <functional>

#include "slimexx/dist/process_grid.h"

namespace slimexx::dist {

using AxisGroups = std::array<Collective*, kNumGridAxes>;

// Axes that cut the world alike have one group: `one` or `world` where it is that, else what `make`
// gives for the first of them.
AxisGroups make_axis_groups(const GridShape& shape, Collective& one, Collective& world,
                            const std::function<Collective*(GridAxis)>& make);
Groups to_groups(Collective& world, const AxisGroups& axes);

}  // namespace slimexx::dist
