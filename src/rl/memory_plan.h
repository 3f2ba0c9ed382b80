// How a GPU's memory is divided between what a training run holds all the time and the pool in
// which generation (keys and values) and training (activations) take turns. Decided once, at start.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/tensor/tensor.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// What is known of one rank's device when only the engine and the pool are still to be made.
struct MemoryBudget {
  int64_t device_bytes = 0;                   // the whole device
  double mem_fraction = 0;                    // rollout.mem_fraction_static
  int64_t used_bytes = 0;                     // of the device, by anyone
  std::vector<tensor::NamedBytes> live = {};  // of that, this program's tensors
  int64_t workspace_bytes = 0;                // the engine's, beside keys and values
  int64_t min_cache_bytes = 0;                // keys and values of one sequence; 0: no engine
  int64_t max_cache_bytes = 0;                // more would not serve
  bool cache_is_given = false;                // max_cache_bytes is what the configuration asks for
  train::ActivationBytes activations = {};
  // A dump's samples are not known yet: activations may need all there is.
  bool has_unknown_samples = false;
};

struct MemoryPlan {
  MemoryBudget budget = {};
  int64_t pool_bytes = 0;       // of keys and values, and in turn with them of activations
  int64_t cache_bytes = 0;      // of the pool, its first bytes
  int64_t share_bytes() const;  // what the program may take of the device
  int64_t left_bytes() const;   // of the share, for the pool
};

// Throws Error(kEnvironment) with the table and the keys to turn where the least does not fit.
MemoryPlan plan_memory(MemoryBudget budget);

// The plan as lines of a table, each ended by a newline.
std::string format_memory(const MemoryPlan& plan);

}  // namespace slimexx::rl
