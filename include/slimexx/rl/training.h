// `slimexx train`: builds a run from its configuration and drives it to the end.
#pragma once
#include <string>

#include "slimexx/dist/communicator.h"
#include "slimexx/rl/run_config.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rl {

struct TrainRequest {
  RunConfig config;
  std::string resume;        // checkpoint folder to continue from; empty: start anew
  std::string command_line;  // of a resume, for the banner
  tensor::Device device;
  bool dry_run =
      false;  // build everything, print the banner and the memory, stop before the first rollout
};

// Throws Error(kInterrupted) after the checkpoint when a signal stopped the run, Error(kCheck) for
// a failed numeric check. Collective.
void run_training(TrainRequest request, dist::World& world);

// `slimexx eval` with a configuration: evaluates model.hf_checkpoint on eval.eval_prompt_data,
// prints the table to stdout (rank 0) and writes per-sample lines to observe.run_dir if set.
void run_evaluation(RunConfig config, tensor::Device device, dist::World& world);

}  // namespace slimexx::rl
