// `slimexx plan`: what a run would take and how long a step would be, by the code that builds a
// run, without its GPUs and without its ranks. Plain data; plan_text.cpp and plan_json.cpp print
// it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/model/spec.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/rank_roles.h"
#include "slimexx/rl/run_config.h"
#include "slimexx/tensor/tensor.h"
#include "slimexx/train/schedule.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// A kind of GPU, or the CPU. Rates are those of kernels as the ledger has them
// (docs/performance.md), not those of a data sheet.
struct GpuKind {
  std::string name;                // of --gpu
  std::string title;               // "NVIDIA H200"
  int64_t memory_bytes = 0;        // as the driver counts it; 0: not limited
  int64_t driver_bytes = 0;        // held by driver and libraries
  int64_t nccl_bytes = 0;          // held besides where there are several ranks
  double copy_bytes_per_s = 0;     // of a device copy, read and written
  double nvlink_bytes_per_s = 0;   // that a rank sends in a collective within a host
  double network_bytes_per_s = 0;  // between hosts: an estimate
  double compute = 1;              // products, relative to an H200
  bool is_measured = false;        // on such a GPU
  bool is_cpu() const { return name == "cpu"; }
  // By a rank of so many, before it allocates anything.
  int64_t held_bytes(int num_ranks) const {
    return driver_bytes + (num_ranks > 1 ? nccl_bytes : 0);
  }
};
std::span<const GpuKind> list_gpu_kinds();
const GpuKind& find_gpu_kind(const std::string& name);  // throws Error(kUsage)

struct PlanRequest {
  RunConfig config;
  int num_ranks = 1;
  GpuKind gpu;
  std::optional<int64_t> response_tokens = {};  // mean; empty: half of rollout_max_response_len
  bool knows_kernels = true;  // this build counts what kernels take beside their operands
};

// Lengths that the plan goes by.
struct PlannedLengths {
  bool knows_prompts = false;                   // read from data.prompt_data, else assumed
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

// The ranks of a pipeline stage, and what the one of them holds that holds no less than any other.
// Or, where ranks are apart, the first of those that generate: what belongs to training is then
// zero or empty.
struct PlannedStage {
  int first_rank = 0, num_ranks = 0;
  std::vector<model::StageRange> chunks;
  int64_t num_parameters = 0;                              // that a rank holds
  std::vector<tensor::NamedBytes> memory;                  // by name, behind the start of a run
  int64_t engine_bytes = 0;                                // of weights: the engine's own
  double decode_dense_bytes = 0, decode_expert_bytes = 0;  // of weights, of its decode steps
  int64_t used_bytes = 0;                                  // all of it, with what the driver holds
  int64_t training_bytes = 0;  // without the engine, with the least activations
  int64_t limit_bytes = 0;     // rollout.mem_fraction_static of the device; 0: none
  int64_t missing_bytes = 0;   // 0: it fits
  // Where it does not: of used_bytes, what the pool would have to hold at the least.
  int64_t needed_pool_bytes = 0;
  std::string turn;  // which key, where it does not
  int64_t pool_bytes = 0, cache_bytes = 0, cache_tokens = 0;
  double bytes_per_cached_token = 0;  // on this rank
  train::ActivationBytes activations = {};
  int64_t logits_bytes = 0;     // at once, at most
  int64_t snapshot_bytes = 0;   // host memory that a checkpoint takes while it is written
  int64_t owned_elements = 0;   // trained, whose optimizer state this rank has
  int64_t host_bytes = 0;       // host memory of optimizer state
  int64_t reference_bytes = 0;  // host memory of the reference
  double kept = 1;              // share of what layers could keep for backward that has room
  double flops = 0;             // of a rank, forward and backward of a microbatch
  double forward_flops = 0;     // the same of its forward, MTP layers left out
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
  dist::GridShape grid{1, {}};  // of the ranks that train
  train::PipelineShape pipeline;
  EngineShape engines;
  GpuKind gpu;
  PlannedLengths lengths;
  int64_t total_parameters = 0;
  int64_t num_steps = 1, samples_per_step = 0, samples_per_microbatch = 0, microbatches = 0;
  int64_t handed_over_bytes = 0;          // that a rank receives after every rollout, at most
  std::vector<PlannedStage> stages;       // of the ranks that train
  std::optional<PlannedStage> generator;  // apart: of those that generate
  std::vector<PlannedPhase> phases;       // of a rollout; a GPU's only
  std::vector<std::string> fits_with;     // changes of the configuration, where it does not fit
  std::vector<std::string> notes;         // what is assumed, and what a run refuses today
  // Of the stages that run engines the one with room for the fewest tokens.
  const PlannedStage& engine_stage() const;
  const PlannedStage& worst() const;  // what lacks most
  bool fits() const { return worst().missing_bytes == 0; }
  double seconds() const;
};

// The ranks that a configuration asks for: parallel.actor_num_gpus, with rollout_num_gpus where
// ranks are apart, or as few as its grid has.
int choose_num_ranks(const ParallelOptions& options);

// Throws Error for what a run would refuse when it starts: sizes that do not divide, a model that
// is not known, lengths beyond its positions. What does not fit is no error here: PlannedStage.
RunPlan make_plan(const PlanRequest& request);

std::string format_plan(const RunPlan& plan, const RunConfig& config);
Json plan_to_json(const RunPlan& plan);

}  // namespace slimexx::rl
