#include "slimexx/rl/rank_roles.h"

#include <memory>
#include <vector>

namespace slimexx::rl {

RankRoles make_rank_roles(const ParallelOptions& options, int num_ranks) {
  if (options.colocate) return {num_ranks, num_ranks, false};
  const auto trainers = static_cast<int>(options.actor_num_gpus.value());
  return {trainers, num_ranks - trainers, true};
}

model::Layout spread_served(const RankRoles& roles, model::Layout layout) {
  layout.ranks.insert(layout.ranks.begin(), static_cast<size_t>(roles.first_generator()),
                      std::make_shared<const std::vector<model::ParameterInfo>>());
  return layout;
}

}  // namespace slimexx::rl
