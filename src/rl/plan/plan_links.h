// Communication between the ranks of a grid, for a plan.
#pragma once
#include <string>
#include <vector>

#include "slimexx/rl/plan.h"

namespace slimexx::rl {

// The traffic of a microbatch over an axis with several ranks. Axes with the same groups of ranks
// share one byte counter: they are listed once, under both names.
struct PlannedExchange {
  dist::GridAxis axis;
  std::string what;
};
std::vector<PlannedExchange> list_exchanges(const dist::GridShape& grid, bool has_experts);

// The link of `rank`, which sends `bytes` bytes.
PlannedLink make_link(const dist::GridShape& grid, int rank, const tensor::DeviceKind& gpu,
                      std::string what, dist::GridAxis axis, double bytes);

}  // namespace slimexx::rl
