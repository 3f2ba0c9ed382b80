// One pipeline stage of a plan, built as the rank that holds most would be; and a rank that
// only generates.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "rl/plan/memory_plan.h"
#include "slimexx/model/stages.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/plan.h"

namespace slimexx::rl {

// What all stages of a plan share.
struct StagePlanInputs {
  const PlanRequest& request;
  const model::ModelSpec& spec;
  const std::vector<model::ModelSpec>& frozen;  // as RunConfig::frozen_models
  RankRoles roles;
  const dist::GridShape& grid;  // of the ranks that train
  EngineShape engines;
  PlannedLengths lengths;
  int64_t longest_generated = 0;
  int64_t num_sampled_tokens = 0;      // of the tokenizer
  int64_t samples_per_microbatch = 0;  // of the mean length
  int64_t microbatches = 0;            // of a rank in an optimizer step
};

tensor::Device plan_device(const GpuKind& gpu);
// Takes no memory except lists on the host: tensor::PlanningScope.
PlannedStage plan_stage(const StagePlanInputs& inputs, int stage);
// Where ranks are apart.
PlannedStage plan_generator(const StagePlanInputs& inputs);

// ---- plan_keys.cpp ----
// What to turn where `missing_bytes` are missing: the share of the device, where a little more of
// it would do; else what is largest, until that is more than what is missing.
std::string choose_keys(const RunConfig& config, const MemoryBudget& budget, int64_t engine_bytes,
                        int64_t missing_bytes);

// A change that may take less memory on a rank that trains.
struct PlanChange {
  std::string text;  // "optimizer.optimizer_cpu_offload: true"
  PlanRequest request;
  bool is_pair = false;  // of two such changes
};
// One key each, or two that belong together; then pairs of them.
std::vector<PlanChange> list_changes(const PlanRequest& request, const PlannedLengths& lengths);

}  // namespace slimexx::rl
