// Reports about a run's configuration before it starts.
#pragma once
#include <string>
#include <vector>

#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// The batch equation with its numbers: "rollout_batch_size 32 * n_samples_per_prompt 8 =
// global_batch_size 256 * num_steps_per_rollout 1".
std::string describe_batch(const RunConfig& config);

// Says when and where the run saves; an empty `root` leaves out the folder.
std::string describe_saves(const RunConfig& config, const std::string& root);

// The key that makes the run longer.
const char* name_length_key(const RunConfig& config);

// One line for each reason why keys have no effect.
std::vector<std::string> describe_taken_keys(const RunConfig& config);

// Sampling options that the training log-probs do not reflect, as one sentence; empty if none.
std::string describe_truncated_sampling(const RunConfig& config);

}  // namespace slimexx::rl
