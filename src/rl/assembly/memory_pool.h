// The pool: device memory that generation (keys and values) and training (activations) take in
// turns. Its size follows from what a rank's parts need; the same functions size it for a run and
// for its plan.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "rl/assembly/engine_model.h"
#include "rl/assembly/frozen_model.h"
#include "rl/plan/memory_plan.h"
#include "slimexx/dist/groups.h"
#include "slimexx/rollout/engine.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// On a GPU: all memory that is left after weights, gradients, optimizer and workspaces. Colocated
// ranks use it for activations while training, and its first bytes for keys and values while
// generating; disaggregated ranks use it for one of the two. On the CPU there is no pool.
struct SharedMemory {
  std::optional<MemoryPlan> plan;
  tensor::Buffer pool;
};

// The parts of a rank that take memory from the pool.
struct PoolUsers {
  train::Trainer* trainer = nullptr;  // null: the rank only generates
  std::span<const FrozenModel> frozen = {};
  const model::ParameterStore* policy = nullptr;  // of the trainer
  std::optional<int64_t> longest_trained = {};  // tokens; nullopt: known only from a dump's samples
  const EngineModel* engine = nullptr;          // null, or without decoder: the rank only trains
  rollout::EngineOptions engine_options = {};
  int64_t num_sampled_tokens = 0;  // of the tokenizer
  const dist::Groups* engine_groups = nullptr;
  bool has_engine() const { return engine != nullptr && engine->decoder != nullptr; }
};

MemoryNeeds list_needs(const RankInputs& inputs, const PoolUsers& users);
// Allocates the pool of `plan`. Returns the engine's part, which is at the start of the pool.
tensor::Tensor make_pool(const RankInputs& inputs, const PoolUsers& users, MemoryPlan plan,
                         SharedMemory& memory);

}  // namespace slimexx::rl
