// Plans one pipeline stage by building its fullest rank, or a rank that only generates.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rl/plan/memory_plan.h"
#include "slimexx/model/stages.h"
#include "slimexx/model/weight_plan.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/plan.h"

namespace slimexx::rl {

// Inputs that all stages of a plan share.
struct StagePlanInputs {
  const PlanRequest& request;
  const model::ModelSpec& spec;
  const std::vector<model::ModelSpec>& frozen;  // as RunConfig::frozen_models
  RankRoles roles;
  const dist::GridShape& grid;  // the ranks that train
  EngineShape engines;
  PlannedLengths lengths;
  int64_t longest_generated = 0;
  int64_t num_sampled_tokens = 0;      // size of the tokenizer's vocabulary
  int64_t samples_per_microbatch = 0;  // samples have the mean length
  int64_t microbatches = 0;            // per rank and optimizer step
  // The transfers of a hand-over: null until the first stage that has a hand-over makes them.
  std::shared_ptr<const model::WeightTransfers>& transfers;
};

tensor::Device plan_device(const tensor::DeviceKind& gpu);
// Allocates nothing except lists on the host (see tensor::PlanningScope).
PlannedStage plan_stage(const StagePlanInputs& inputs, int stage);
// Plans a rank that only generates, in a disaggregated run.
PlannedStage plan_generator(const StagePlanInputs& inputs);

// ---- plan_keys.cpp ----
// Advice on which keys to change if `missing_bytes` are missing: rollout.mem_fraction_static if a
// slightly larger share of the device is enough; otherwise the keys of the largest users of memory,
// until these together use more than `missing_bytes`.
std::string choose_keys(const RunConfig& config, const MemoryBudget& budget, int64_t engine_bytes,
                        int64_t missing_bytes);

// A change that may save memory on a rank that trains.
struct PlanChange {
  std::string text;  // "optimizer.optimizer_cpu_offload: true"
  PlanRequest request;
  bool is_pair = false;  // combines two changes
};
// Changes of one key, or of two that belong together; then pairs of such changes.
std::vector<PlanChange> list_changes(const PlanRequest& request, const PlannedLengths& lengths);

}  // namespace slimexx::rl
