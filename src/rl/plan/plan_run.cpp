// A plan: batch and stages. plan_lengths.cpp plans the lengths, plan_stage.cpp one stage,
// plan_time.cpp the phases.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "rl/config/speculation.h"
#include "rl/plan/plan_lengths.h"
#include "rl/plan/plan_stage.h"
#include "rl/plan/plan_time.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/describe.h"
#include "slimexx/model/stages.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/model_grid.h"
#include "slimexx/train/packing.h"

namespace slimexx::rl {
namespace {

// Reads the spec like a run, but the folder may hold only config.json.
model::ModelSpec read_spec(const std::string& directory, const train::TrainOptions* training,
                           const Fp8Choice& fp8) {
  const io::HfFolder folder = io::HfFolder::open_without_weights(directory);
  model::ModelSpec spec =
      model::read_model_spec(folder.config(), join_path(directory, "config.json"));
  if (training != nullptr) choose_trained(spec, *training, directory);
  choose_fp8(spec, fp8, folder.config(), directory);
  return spec;
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request) : request_(request), config_(request.config) {}

  RunPlan make() {
    plan_.gpu = request_.gpu;
    plan_.spec = read_spec(config_.model.hf_checkpoint, &config_.train,
                           make_fp8_choice(config_, Fp8Use::kPolicy));
    plan_.roles = make_rank_roles(config_.parallel, request_.num_ranks);
    plan_.grid = dist::GridShape(plan_.roles.num_trainers, grid_sizes(config_.parallel));
    const model::PipelineSplit split = pipeline_split(config_.parallel);
    check_model_grid(plan_.spec, plan_.grid, split);
    plan_.pipeline = train::make_pipeline_shape(config_.train, plan_.grid.sizes().pp,
                                                model::list_stages(plan_.spec, split)[0].size());
    plan_.total_parameters = model::count_parameters(plan_.spec).total;
    plan_.engines = make_engine_shape(config_.rollout, plan_.grid.sizes(),
                                      plan_.roles.num_generators, &plan_.spec);
    check_speculation(config_.rollout, plan_.spec, config_.model.hf_checkpoint);
    check_stop_tokens(config_.rollout.rollout_stop_token_ids, plan_.spec.vocab_size);
    if (!request_.knows_kernels && !plan_.gpu.is_cpu())
      note(
          "this build has no CUDA: the scratch memory of kernels, a few hundred MiB, is not "
          "counted");
    if (speculates(config_.rollout))
      note(
          "the speed-up of speculative decoding depends on how many drafts are accepted, and is "
          "not counted");
    take_lengths(plan_lengths(request_, plan_.spec, plan_.grid.sizes().cp));
    plan_batch();
    plan_stages();
    if (!plan_.gpu.is_cpu()) plan_phases(request_, plan_);
    return std::move(plan_);
  }

 private:
  void note(const std::string& text) { plan_.notes.push_back(text); }

  void take_lengths(LengthPlan lengths) {
    plan_.lengths = lengths.lengths;
    longest_generated_ = lengths.longest_generated;
    num_sampled_tokens_ = lengths.num_sampled_tokens;
    for (const std::string& text : lengths.notes) note(text);
  }

  // Assumes that every sample has the mean length.
  void plan_batch() {
    plan_.num_steps = std::max<int64_t>(config_.num_steps_per_rollout, 1);
    plan_.samples_per_step = std::max<int64_t>(config_.global_batch_size, 1);
    const std::vector<int64_t> lengths(static_cast<size_t>(plan_.samples_per_step),
                                       plan_.lengths.mean());
    const auto bins = train::pack_microbatches(
        lengths, {.dynamic = config_.train.use_dynamic_batch_size,
                  .max_tokens = config_.train.max_tokens_per_gpu * plan_.grid.sizes().cp,
                  .micro_batch_size = config_.train.micro_batch_size});
    plan_.samples_per_microbatch = std::ssize(bins[0]);
    const int64_t dp = plan_.grid.size(dist::GridAxis::kDp);
    plan_.microbatches =
        train::round_up_microbatches(plan_.pipeline, (std::ssize(bins) + dp - 1) / dp);
  }

  void plan_stages() {
    const Fp8Choice fp8 = make_fp8_choice(config_, Fp8Use::kScoring);
    std::vector<model::ModelSpec> frozen;
    for (const FrozenModelOptions& options : config_.frozen_models) {
      const bool is_here = path_exists(join_path(options.folder, "config.json"));
      frozen.push_back(
          read_spec(is_here ? options.folder : config_.model.hf_checkpoint, nullptr, fp8));
      if (!is_here)
        note(fmt::format("{} does not exist: the {} is assumed to have the policy's architecture",
                         options.folder, options.name));
    }
    std::shared_ptr<const model::WeightTransfers> transfers;
    const StagePlanInputs inputs{.request = request_,
                                 .spec = plan_.spec,
                                 .frozen = frozen,
                                 .roles = plan_.roles,
                                 .grid = plan_.grid,
                                 .engines = plan_.engines,
                                 .lengths = plan_.lengths,
                                 .longest_generated = longest_generated_,
                                 .num_sampled_tokens = num_sampled_tokens_,
                                 .samples_per_microbatch = plan_.samples_per_microbatch,
                                 .microbatches = plan_.microbatches,
                                 .transfers = transfers};
    for (int stage = 0; stage < plan_.grid.sizes().pp; ++stage)
      plan_.stages.push_back(plan_stage(inputs, stage));
    if (plan_.roles.are_apart) plan_.generator = plan_generator(inputs);
    plan_.handed_over_bytes = plan_.engine_stage().engine_bytes;
    if (!plan_.fits()) try_changes(inputs);
  }

  // Finds up to two changes with which the run fits, by planning its stages with each. Changes of
  // one key come before pairs. Above kMostRanks ranks this would take too long.
  void try_changes(const StagePlanInputs& inputs) {
    constexpr int kMostRanks = 64;
    constexpr size_t kMostNamed = 2;
    const bool trainers_fit = std::ranges::all_of(
        plan_.stages, [](const PlannedStage& stage) { return stage.missing_bytes == 0; });
    if (trainers_fit || request_.num_ranks > kMostRanks) return;
    for (const PlanChange& change : list_changes(request_, plan_.lengths)) {
      if (plan_.fits_with.size() == kMostNamed) return;
      if (!plan_.fits_with.empty() && change.is_pair) return;
      if (fits(inputs, change.request)) plan_.fits_with.push_back(change.text);
    }
  }

  static bool fits(const StagePlanInputs& inputs, const PlanRequest& changed) {
    try {
      const ParallelOptions& options = changed.config.parallel;
      const RankRoles roles = make_rank_roles(options, changed.num_ranks);
      const dist::GridShape grid(roles.num_trainers, grid_sizes(options));
      check_model_grid(inputs.spec, grid, pipeline_split(options));
      std::shared_ptr<const model::WeightTransfers> transfers;
      const StagePlanInputs own{.request = changed,
                                .spec = inputs.spec,
                                .frozen = inputs.frozen,
                                .roles = roles,
                                .grid = grid,
                                .engines = make_engine_shape(changed.config.rollout, grid.sizes(),
                                                             roles.num_generators, &inputs.spec),
                                .lengths = inputs.lengths,
                                .longest_generated = inputs.longest_generated,
                                .num_sampled_tokens = inputs.num_sampled_tokens,
                                .samples_per_microbatch = inputs.samples_per_microbatch,
                                .microbatches = inputs.microbatches,
                                .transfers = transfers};
      for (int stage = 0; stage < grid.sizes().pp; ++stage)
        if (plan_stage(own, stage).missing_bytes > 0) return false;
      return !roles.are_apart || plan_generator(own).missing_bytes == 0;
    } catch (const Error&) {  // a run would refuse this change
      return false;
    }
  }

  const PlanRequest& request_;
  const RunConfig& config_;
  RunPlan plan_;
  int64_t longest_generated_ = 0, num_sampled_tokens_ = 0;
};

}  // namespace

int choose_num_ranks(const ParallelOptions& options) {
  if (options.actor_num_gpus)
    return static_cast<int>(*options.actor_num_gpus +
                            (options.colocate ? 0 : options.rollout_num_gpus.value()));
  const dist::GridSizes s = grid_sizes(options);
  return static_cast<int>(std::lcm(int64_t{s.tp} * s.cp * s.pp, int64_t{s.etp} * s.ep * s.pp));
}

RunPlan make_plan(const PlanRequest& request) { return Planner(request).make(); }

const PlannedStage& RunPlan::engine_stage() const {
  return generator ? *generator
                   : *std::ranges::min_element(stages, {}, &PlannedStage::cache_tokens);
}

const PlannedStage& RunPlan::worst() const {
  const auto stage = std::ranges::max_element(stages, {}, &PlannedStage::missing_bytes);
  return generator && generator->missing_bytes > stage->missing_bytes ? *generator : *stage;
}

double RunPlan::seconds() const {
  double sum = 0;
  for (const PlannedPhase& phase : phases) sum += phase.seconds;
  return sum;
}

}  // namespace slimexx::rl
