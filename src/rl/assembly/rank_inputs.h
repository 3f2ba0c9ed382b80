// The inputs from which the parts of a rank are built. A run and `slimexx plan` call the functions
// of this folder in the same order. A planned rank differs in three places: its groups are planning
// groups, its weights are never read, and its device's memory is given, not measured.
#pragma once
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/model_ranks.h"
#include "slimexx/rl/rank_roles.h"
#include "slimexx/rl/run_config.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rl {

struct RankInputs {
  const RunConfig& config;
  const ModelRanks& model_ranks;  // of the ranks that train
  const RankRoles& roles;
  const EngineShape& engine_shape;
  tensor::Device device;
  int rank = 0;  // in the world
  bool trains() const { return roles.trains(rank); }
  bool generates() const { return roles.generates(rank); }
};

}  // namespace slimexx::rl
