// How a GPU's memory is divided between what a training run holds all the time and the pool in
// which generation (keys and values) and training (activations) take turns. Decided once, at start.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/rl/run_config.h"
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
  train::ActivationBytes activations = {};    // zero: the rank only generates
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

// What the budget's least needs take beyond the share; 0 where they fit.
int64_t missing_bytes(const MemoryBudget& budget);

// What engine and trainer ask of the pool; the same code asks for a run and for `slimexx plan`.
struct MemoryNeeds {
  const RunConfig& config;
  train::Trainer* trainer = nullptr;  // null: the rank only generates
  std::optional<rollout::EngineMemory> engine = {};
  // Tokens of the longest sequence that is trained; none where only a dump's samples can tell.
  std::optional<int64_t> longest = {};
  // Scoring by frozen models: bytes for samples of `longest` tokens, `num_samples` in a microbatch;
  // empty: there is none.
  std::function<int64_t(int64_t longest, int64_t num_samples)> plan_scoring = {};
};
// Adds the needs to what is known of the device. Where the configuration leaves it open and there
// is no room for more, the trainer's logits get smaller.
MemoryBudget add_needs(MemoryBudget budget, const MemoryNeeds& needs);
// No microbatch has more samples than an optimizer step.
int64_t samples_per_microbatch(const RunConfig& config);
// Log-probs are made of all samples of a rollout, which may be several steps.
int64_t samples_per_scored_microbatch(const RunConfig& config);

// The plan as lines of a table, each ended by a newline.
std::string format_memory(const MemoryPlan& plan);

}  // namespace slimexx::rl
