// `slimexx train`: builds a run from its configuration and drives it to the end.
#pragma once
#include <string>
#include <vector>

#include "slimexx/dist/world.h"
#include "slimexx/rl/run_config.h"
#include "slimexx/rl/run_start.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rl {

struct TrainRequest {
  RunConfig config;  // its observe.run_dir is that of `start`
  RunStart start;
  RunLocks locks;                             // held by rank 0
  std::string start_command, resume_command;  // what to type, for the banner
  tensor::Device device;
  // Build everything, print the banner and the memory, and stop before the first rollout. Nothing
  // is written.
  bool dry_run = false;
};

// If a signal stopped the run, throws Error(kInterrupted) after saving a checkpoint. Throws
// Error(kCheck) for a failed numeric check. Collective.
void run_training(TrainRequest request, dist::World& world);

}  // namespace slimexx::rl
