// Assigns the ranks of a launch to training and generation.
#pragma once
#include "slimexx/model/layout.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Colocated: every rank does both. Disaggregated: the first num_trainers ranks train and
// the ranks after them generate, as slime places them.
struct RankRoles {
  int num_trainers = 1, num_generators = 1;
  bool are_apart = false;
  int world_size() const { return are_apart ? num_trainers + num_generators : num_trainers; }
  int first_generator() const { return are_apart ? num_trainers : 0; }
  bool trains(int rank) const { return rank < num_trainers; }
  bool generates(int rank) const { return rank >= first_generator(); }
};

// `num_ranks` were started; load_run_config has already refused inconsistent numbers.
RankRoles make_rank_roles(const ParallelOptions& options, int num_ranks);

// Extends the layout of the ranks that generate to all ranks of the world; the other ranks hold
// nothing in it.
model::Layout spread_served(const RankRoles& roles, model::Layout of_generators);

}  // namespace slimexx::rl
