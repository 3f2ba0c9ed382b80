// How the ranks of an engine share a model: the sizes that `rollout` asks for, checked before
// anything is loaded.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/spec.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// All engines have the same shape; each engine is a range of consecutive ranks of the world. An
// attention group is sizes.tp consecutive ranks of an engine: it has its own requests and KV cache
// (data-parallel attention), and all of its ranks compute the same batch. Each sizes.ep consecutive
// ranks of an engine hold all experts (see model::ExpertPlacement); if they span several attention
// groups, these groups run their steps together.
struct EngineShape {
  int num_engines = 1;
  int num_ranks = 1;           // per engine
  dist::GridSizes sizes = {};  // the grid of all engines
  int redundant_experts = 0;   // copies of experts beyond the first
  int dense_tp = 1;            // TP of dense MLPs and shared experts: sizes.tp or 1
  int64_t leaves = 1;          // count_leaves
  int num_attention_groups() const { return num_ranks / sizes.tp; }
};

// `trainer` is the training grid over the same ranks. Throws Error(kUsage) with the equation, the
// key and the nearest valid sizes. If `spec` is null, the model's sizes are not checked.
EngineShape make_engine_shape(const RolloutOptions& options, const dist::GridSizes& trainer,
                              int world_size, const model::ModelSpec* spec);

// Number of leaves of a sum, the same for trainer and engine (numerics contract, N6).
int64_t count_leaves(const RolloutOptions& options, const dist::GridSizes& trainer);

// "6 attention groups of TP 4, EP 24 with 16 redundant experts"
std::string describe_engine(const EngineShape& shape);

// The model as engines run it: redundant experts are placed on ranks, and if dense_tp is not the TP
// of attention, every rank has the whole dense MLPs for its own rows. All products compute from the
// encoding, if there is one.
model::ModelSpec make_engine_spec(const EngineShape& shape, model::ModelSpec spec);

// Whether each rank's engine holds exactly the parameters that the rank trains.
bool holds_trained_shards(const EngineShape& shape, const dist::GridSizes& trainer,
                          const model::ModelSpec& spec);

// Experts of an MoE layer; 0: the model has none.
int64_t count_experts(const model::ModelSpec& spec);

}  // namespace slimexx::rl
