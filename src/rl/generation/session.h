// State that every rank of a run has, in any role: the world, the configuration, the run folder and
// its log.
#pragma once
#include <memory>
#include <string>

#include "rl/assembly/rank_inputs.h"
#include "slimexx/dist/rank_watch.h"
#include "slimexx/dist/world.h"
#include "slimexx/observe/metrics.h"
#include "slimexx/rl/training.h"

namespace slimexx::rl {

struct Session {
  Session(TrainRequest request, dist::World& world);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool is_root() const { return world.rank() == 0; }  // the root trains
  bool trains() const { return roles.trains(world.rank()); }
  bool generates() const { return roles.generates(world.rank()); }
  std::string path(const std::string& name) const;  // in the run folder
  std::string start_command() const;                // the command to type, launcher included
  std::string resume_command() const;
  RankInputs rank_inputs() const {
    return {config, model_ranks, roles, engine_shape, request.device, world.rank()};
  }

  TrainRequest request;
  const RunConfig& config;  // the request's
  dist::World& world;
  dist::Collective& communicator;  // of the world
  RankRoles roles;
  std::unique_ptr<dist::Collective> part_of_world;  // null: colocated
  // The ranks with this rank's role, on host memory: all, or those that train, or those that
  // generate.
  dist::Collective& peers;
  ModelRanks model_ranks;
  EngineShape engine_shape;
  std::string checkpoint_root;
  std::unique_ptr<dist::RankWatch> watch;  // null in a dry run
  std::unique_ptr<observe::RunLog> log;    // set at the end of the start
};

}  // namespace slimexx::rl
