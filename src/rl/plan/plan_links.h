// What the ranks of a grid send to each other, for a plan.
#pragma once
#include <string>
#include <vector>

#include "slimexx/rl/plan.h"

namespace slimexx::rl {

// What a microbatch sends over an axis that has several ranks. Axes that cut the ranks alike have
// one group, whose bytes are one number: they are listed once, as both.
struct PlannedExchange {
  dist::GridAxis axis;
  std::string what;
};
std::vector<PlannedExchange> list_exchanges(const dist::GridShape& grid, bool has_experts);

// Of `rank`, which sends so many bytes.
PlannedLink make_link(const dist::GridShape& grid, int rank, const GpuKind& gpu, std::string what,
                      dist::GridAxis axis, double bytes);

}  // namespace slimexx::rl
