// Divides a GPU's memory, once at the start: fixed allocations of a training run, and a pool that
// generation (KV cache) and training (activations) use in turn.
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

// State of a rank's device when only the engine and the pool are still to be made.
struct MemoryBudget {
  int64_t device_bytes = 0;                   // the whole device
  double mem_fraction = 0;                    // rollout.mem_fraction_static
  int64_t used_bytes = 0;                     // of the device, by any process
  std::vector<tensor::NamedBytes> live = {};  // part of used_bytes: this program's tensors
  int64_t workspace_bytes = 0;                // the engine's, without the KV cache
  int64_t min_cache_bytes = 0;                // KV cache of one sequence; 0: no engine
  int64_t max_cache_bytes = 0;                // more would not be used
  bool cache_is_given = false;                // the configuration sets max_cache_bytes
  train::ActivationBytes activations = {};    // zero: the rank only generates
  // A dump's samples are not known yet: activations may need all the memory left.
  bool has_unknown_samples = false;
};

struct MemoryPlan {
  MemoryBudget budget = {};
  int64_t pool_bytes = 0;       // KV cache and activations, in turn
  int64_t cache_bytes = 0;      // size of the KV cache, at the start of the pool
  int64_t share_bytes() const;  // memory of the device that the program may take
  int64_t left_bytes() const;   // part of the share that is left for the pool
};

// Throws Error(kEnvironment) with the table and the keys to change if the minimum does not fit.
MemoryPlan plan_memory(MemoryBudget budget);

// Bytes by which the budget's minimum exceeds the share; 0 if it fits.
int64_t missing_bytes(const MemoryBudget& budget);

// What determines the memory that the engine and the trainer need. A run and `slimexx plan` fill it
// with the same code (list_needs).
struct MemoryNeeds {
  const RunConfig& config;
  train::Trainer* trainer = nullptr;  // null: the rank only generates
  std::optional<rollout::EngineMemory> engine = {};
  // Tokens of the longest sequence that is trained; empty: known only from a dump's samples.
  std::optional<int64_t> longest = {};
  // Scoring by frozen models: bytes for samples of `longest` tokens, `num_samples` in a microbatch;
  // empty: there is none.
  std::function<int64_t(int64_t longest, int64_t num_samples)> plan_scoring = {};
};
// Adds the needs to the budget. If there is too little room and train.max_logits_gib is not set,
// halves the trainer's limit on logits until they fit.
MemoryBudget add_needs(MemoryBudget budget, const MemoryNeeds& needs);
// A microbatch has at most the samples of one optimizer step.
int64_t samples_per_microbatch(const RunConfig& config);
// Scoring takes all samples of a rollout, which may be several steps.
int64_t samples_per_scored_microbatch(const RunConfig& config);

// The plan as lines of a table, each ended by a newline.
std::string format_memory(const MemoryPlan& plan);

}  // namespace slimexx::rl
