// How the ranks of an engine share a model: what `rollout` asks for, checked before anything is
// loaded.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/spec.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Engines are alike, and each is consecutive ranks of the world. An attention group is sizes.tp
// consecutive ranks of an engine: it has requests and a KV cache of its own (data-parallel
// attention), and all of its ranks compute the same batch. Each sizes.ep consecutive ranks of an
// engine hold all experts, as model::ExpertPlacement has it; where these are several attention
// groups, they run their steps together.
struct EngineShape {
  int num_engines = 1;
  int num_ranks = 1;           // of one engine
  dist::GridSizes sizes = {};  // of the grid of all engines
  int redundant_experts = 0;   // copies of experts beyond the first
  int dense_tp = 1;            // of dense MLPs and shared experts: sizes.tp, or 1
  int64_t leaves = 1;          // count_leaves
  int num_attention_groups() const { return num_ranks / sizes.tp; }
};

// `trainer` is the grid of training over the same ranks. Throws Error(kUsage) with the equation,
// the key and the nearest sizes that would do. `spec` null: whether the model divides is left open.
EngineShape make_engine_shape(const RolloutOptions& options, const dist::GridSizes& trainer,
                              int world_size, const model::ModelSpec* spec);

// The leaves of the sums of trainer and engine alike (numerics contract, N6).
int64_t count_leaves(const RolloutOptions& options, const dist::GridSizes& trainer);

// "6 attention groups of TP 4, EP 24 with 16 redundant experts"
std::string describe_engine(const EngineShape& shape);

// The model as engines run it: copies of experts are placed on ranks, and where dense_tp is not
// attention's, every rank has all of the dense MLPs, for its own rows.
model::ModelSpec make_engine_spec(const EngineShape& shape, model::ModelSpec spec);

// Whether each rank's engine holds just the parameters that the rank trains.
bool holds_trained_shards(const EngineShape& shape, const dist::GridSizes& trainer,
                          const model::ModelSpec& spec);

// Of a layer that has any; 0: the model has none.
int64_t count_experts(const model::ModelSpec& spec);

}  // namespace slimexx::rl
