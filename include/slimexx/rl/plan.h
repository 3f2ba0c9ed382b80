// `slimexx plan`: predicts the memory and the step time of a run. It uses the code that builds a
// run, but needs neither GPUs nor ranks. Plain data; plan_text.cpp and plan_json.cpp print it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/model/spec.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/rank_roles.h"
#include "slimexx/rl/run_config.h"
#include "slimexx/tensor/device_kinds.h"
#include "slimexx/tensor/tensor.h"
#include "slimexx/train/schedule.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// The kind of GPU that --gpu names; throws Error(kUsage) if it is unknown.
const tensor::DeviceKind& find_gpu_kind(const std::string& name);

struct PlanRequest {
  RunConfig config;
  int num_ranks = 1;
  tensor::DeviceKind gpu;
  std::optional<int64_t> response_tokens = {};  // mean; empty: half of rollout_max_response_len
  bool knows_kernels = true;                    // this build can count the workspaces of kernels
};

// Lengths that the plan assumes.
struct PlannedLengths {
  bool knows_prompts = false;                   // read from data.prompt_data; otherwise assumed
  int64_t longest_prompt = 0, mean_prompt = 0;  // tokens
  int64_t longest_trained = 0, max_positions = 0;
  int64_t mean_response = 0, longest_response = 0;
  int64_t mean() const { return mean_prompt + mean_response; }
};

// Bytes that the fullest rank sends over one axis of the grid, in one optimizer step.
struct PlannedLink {
  std::string what;  // "tensor parallel"
  int num_ranks = 1;
  bool crosses_hosts = false;
  double bytes = 0, seconds = 0;
};

// The ranks of a pipeline stage, with the memory of the fullest one. Or, if ranks are
// disaggregated, the first rank that generates: the fields of training are then zero or empty.
struct PlannedStage {
  int first_rank = 0, num_ranks = 0;
  std::vector<model::StageRange> chunks;
  int64_t num_parameters = 0;              // on this rank
  std::vector<tensor::NamedBytes> memory;  // by name, after the start of a run
  int64_t engine_bytes = 0;                // weights that only the engine has
  int64_t fp8_bytes = 0;                   // FP8 weights and their scales, all copies of the rank
  double decode_dense_bytes = 0,
         decode_expert_bytes = 0;  // weights read by the engine's decode steps
  int64_t used_bytes = 0;          // total, including what the driver holds
  int64_t training_bytes = 0;      // without the engine, with the least activations
  int64_t limit_bytes = 0;         // mem_fraction_static times the device's memory; 0: none
  int64_t missing_bytes = 0;       // 0: the run fits
  // If the run does not fit: the part of used_bytes that is the least size of the pool.
  int64_t needed_pool_bytes = 0;
  std::string turn;  // the key to change if it does not fit
  int64_t pool_bytes = 0, cache_bytes = 0, cache_tokens = 0;
  double bytes_per_cached_token = 0;  // on this rank
  train::ActivationBytes activations = {};
  int64_t logits_bytes = 0;     // at most, at one time
  int64_t snapshot_bytes = 0;   // host memory of a checkpoint while it is written
  int64_t owned_elements = 0;   // trained elements whose optimizer state is on this rank
  int64_t host_bytes = 0;       // host memory of optimizer state
  int64_t reference_bytes = 0;  // host memory of the reference
  double kept = 1;           // share of the layers' activations that fit in memory until backward
  double flops = 0;          // per rank, forward and backward of a microbatch
  double forward_flops = 0;  // the forward alone, without MTP layers
  std::vector<PlannedLink> links;
};

struct PlannedPhase {
  std::string name;
  double seconds = 0;
  std::string how;
};

struct RunPlan {
  model::ModelSpec spec;
  RankRoles roles;
  dist::GridShape grid{1, {}};  // the ranks that train
  train::PipelineShape pipeline;
  EngineShape engines;
  tensor::DeviceKind gpu;
  PlannedLengths lengths;
  int64_t total_parameters = 0;
  int64_t num_steps = 1, samples_per_step = 0, samples_per_microbatch = 0, microbatches = 0;
  int64_t handed_over_bytes = 0;          // upper bound on what a rank receives after each rollout
  std::vector<PlannedStage> stages;       // the ranks that train
  std::optional<PlannedStage> generator;  // disaggregated only: the ranks that generate
  std::vector<PlannedPhase> phases;       // of a rollout; GPUs only
  std::vector<std::string> fits_with;     // changes to the configuration that would make it fit
  std::vector<std::string> notes;         // assumptions, and settings that a run refuses
  // Among the stages that run engines, the one with room for the fewest tokens.
  const PlannedStage& engine_stage() const;
  const PlannedStage& worst() const;  // the stage that lacks the most memory
  bool fits() const { return worst().missing_bytes == 0; }
  double seconds() const;
};

// The number of ranks that a configuration asks for: parallel.actor_num_gpus, plus rollout_num_gpus
// if ranks are disaggregated; without these, the fewest that the grid allows.
int choose_num_ranks(const ParallelOptions& options);

// Throws Error for whatever a run refuses at its start: sizes that do not divide, an unknown model,
// lengths beyond the model's positions. Too little memory is not an error here: see PlannedStage.
RunPlan make_plan(const PlanRequest& request);

std::string format_plan(const RunPlan& plan, const RunConfig& config);
Json plan_to_json(const RunPlan& plan);

}  // namespace slimexx::rl
