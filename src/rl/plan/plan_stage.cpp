#include "rl/plan/plan_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "rl/assembly/engine_model.h"
#include "rl/assembly/frozen_model.h"
#include "rl/assembly/memory_pool.h"
#include "rl/assembly/trainer_part.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "rl/generation/sample_source.h"
#include "rl/plan/memory_plan.h"
#include "rl/plan/plan_links.h"
#include "slimexx/dist/planning.h"
#include "slimexx/model/encoding.h"
#include "slimexx/rollout/engine.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::rl {
namespace {

using dist::GridAxis;

std::vector<model::ParameterInfo> held_parameters(const model::ModelSpec& spec,
                                                  const ModelRanks& ranks) {
  const auto stages = model::list_stages(spec, ranks.split);
  const auto own = static_cast<size_t>(ranks.grid.position(ranks.rank).pp);
  std::vector<model::ParameterInfo> infos;
  for (const auto& info : model::list_parameters(spec, stages[own]))
    infos.push_back(model::narrow(info, ranks.grid.sizes(), ranks.grid.position(ranks.rank)));
  return infos;
}

// Samples of the mean length, with all optional fields set.
std::vector<Sample> mean_samples(const PlannedLengths& lengths, int64_t count, int cp) {
  int64_t length = std::max<int64_t>(lengths.mean(), 2);
  if (cp > 1) length = (length + 2 * cp - 1) / (2 * cp) * (2 * cp);
  const int64_t response = std::clamp<int64_t>(lengths.mean_response, 1, length - 1);
  const auto n = static_cast<size_t>(response);
  return {static_cast<size_t>(count),
          Sample{.tokens = std::vector<int32_t>(static_cast<size_t>(length)),
                 .response_length = response,
                 .loss_mask = std::vector<uint8_t>(n, 1),
                 .advantages = std::vector<float>(n),
                 .old_log_probs = std::vector<float>(n),
                 .ref_log_probs = std::vector<float>(n),
                 .rollout_log_probs = std::vector<float>(n)}};
}

// Forward FLOPs of a stage for one sequence, without MTP layers; see model::forward_flops.
double stage_forward_flops(const model::ModelSpec& spec,
                           const std::vector<model::StageRange>& chunks, int64_t num_tokens) {
  double flops = 0;
  const auto add = [&](const auto& block) { flops += forward_flops(block, num_tokens); };
  for (const model::StageRange& chunk : chunks) {
    for (int64_t i = chunk.first_layer; i < chunk.end_layer; ++i) {
      std::visit(add, spec.layer(i).attention);
      std::visit(add, spec.layer(i).mlp);
    }
    if (chunk.has_head) add(spec.head());
  }
  return flops;
}

// FLOPs of a training step, counted as in train::Trainer.
double stage_training_flops(const model::ModelSpec& spec,
                            const std::vector<model::StageRange>& chunks, int64_t num_tokens) {
  double flops = 3 * stage_forward_flops(spec, chunks, num_tokens);
  for (const model::StageRange& chunk : chunks) {
    if (chunk.has_head) flops += 3 * model::mtp_forward_flops(spec, num_tokens);
    flops -= model::frozen_weight_flops(spec, chunk, num_tokens);
  }
  return flops;
}

// The rank of a stage that holds the most bytes: the first of an engine's EP group may have one
// expert more.
int fullest_rank(const StagePlanInputs& in, int stage) {
  const int num_ranks = in.grid.world_size() / in.grid.sizes().pp;
  int fullest = stage * num_ranks;
  if (in.roles.are_apart) return fullest;
  const dist::GridShape engines(in.roles.num_generators, in.engines.sizes);
  for (int rank = fullest; rank < (stage + 1) * num_ranks; ++rank)
    if (engines.position(rank).ep < engines.position(fullest).ep) fullest = rank;
  return fullest;
}

class StagePlanner {
 public:
  // `stage` empty: a rank that only generates.
  StagePlanner(const StagePlanInputs& inputs, std::optional<int> stage)
      : in_(inputs),
        config_(inputs.request.config),
        device_(plan_device(inputs.request.gpu)),
        trains_(stage.has_value()),
        ranks_{.grid = inputs.grid,
               .split = pipeline_split(config_.parallel),
               .rank = stage ? fullest_rank(inputs, *stage) : 0,
               .host = nullptr,
               .host_ranks = {},
               .num_others = inputs.roles.world_size() - inputs.roles.num_trainers},
        grid_(inputs.grid, ranks_.rank, device_),
        store_(trains_ ? held_parameters(inputs.spec, ranks_) : NoParameters(), device_, true),
        engine_grid_(dist::GridShape(inputs.roles.num_generators, inputs.engines.sizes),
                     inputs.roles.are_apart ? 0 : ranks_.rank, device_),
        world_(dist::make_planning_group(own_rank(), inputs.roles.world_size(), device_)) {
    out_.num_ranks =
        trains_ ? inputs.grid.world_size() / inputs.grid.sizes().pp : inputs.roles.num_generators;
    out_.first_rank = trains_ ? *stage * out_.num_ranks : own_rank();
    if (!trains_) return;
    decoders_ = make_policy_decoders(rank_inputs(), inputs.spec, inputs.lengths.max_positions);
    out_.chunks = model::list_stages(inputs.spec, ranks_.split)[static_cast<size_t>(*stage)];
    for (const auto& info : store_.infos()) out_.num_parameters += info.num_elements();
    count_fp8_bytes(store_);
  }

  // Allocates in the order of a run, so that the table of memory is the same.
  PlannedStage plan() {
    if (trains_) plan_trainer();
    make_engine();
    const MemoryBudget budget = plan_needs();
    out_.activations = budget.activations;
    if (trains_) {
      out_.logits_bytes = trainer_->plans().max_logits_bytes();
      out_.snapshot_bytes = snapshot_bytes(trainer_->optimizer(),
                                           std::ranges::any_of(frozen_, &FrozenModel::is_saved));
    }
    if (device_.is_cpu())
      start_engine({});
    else
      divide_memory(budget);
    if (out_.missing_bytes == 0 && engine_model_.own_store) {
      plan_hand_over();
      check_hand_over();
    }
    out_.memory = tensor::list_allocations(device_);
    if (trains_) plan_microbatch();
    return std::move(out_);
  }

 private:
  using NoParameters = std::vector<model::ParameterInfo>;

  int own_rank() const { return trains_ ? ranks_.rank : in_.roles.first_generator(); }
  RankInputs rank_inputs() const {
    return {config_, ranks_, in_.roles, in_.engines, device_, own_rank()};
  }

  void plan_trainer() {
    place_frozen_models();
    trainer_ = make_trainer(rank_inputs(), decoders_, store_, grid_.host(), grid_.groups());
    // The sums of gradients are planned already; publish_master() plans the gathers of weights.
    const double scattered = sum_bytes();
    trainer_->optimizer().publish_master();
    const auto axis = GridAxis::kDpCp;
    add_link("gradients, reduce-scatter", axis, scattered);
    add_link("weights, all-gather", axis, sum_bytes() - scattered);
    grid_.clear_sent_bytes();
    for (const train::OwnedGroup& group : trainer_->optimizer().groups())
      if (group.is_trained()) out_.owned_elements += count_elements(group.pieces);
    out_.host_bytes = trainer_->optimizer().host_bytes();
  }

  void place_frozen_models() {
    for (size_t i = 0; i < in_.frozen.size(); ++i) {
      LoadedModel described;
      described.spec = in_.frozen[i];
      described.layout.ranks = {std::make_shared<const std::vector<model::ParameterInfo>>(
          held_parameters(described.spec, ranks_))};
      FrozenModel& frozen = frozen_.emplace_back(place_frozen_model(
          rank_inputs(), config_.frozen_models[i], std::move(described), decoders_, store_));
      const auto& infos = frozen.model.held_parameters();
      if (frozen.is_transient)
        out_.reference_bytes += model::ParameterStore::weight_bytes(infos, device_);
      else
        frozen.model.store = std::make_unique<model::ParameterStore>(infos, device_, false);
    }
  }

  void make_engine() {
    if (!needs_engine(config_)) return;
    engine_model_ = make_engine_model(
        rank_inputs(), in_.spec, decoders_, store_, in_.lengths.max_positions,
        [&](const model::ModelSpec& spec) { return make_engine_layout(rank_inputs(), spec); });
    if (engine_model_.decoder == nullptr) return;
    const model::ParameterStore& store = *engine_model_.store;
    if (engine_model_.own_store) {
      out_.engine_bytes = model::ParameterStore::weight_bytes(store.infos(), device_);
      count_fp8_bytes(store);
    }
    count_decode_bytes(store);
  }

  void count_fp8_bytes(const model::ParameterStore& store) {
    for (const model::ParameterGroup& group : store.groups())
      if (group.is_derived) out_.fp8_bytes += group.num_elements * tensor::dtype_bytes(group.dtype);
  }

  // Whether the parameter belongs to an MTP layer that makes no drafts.
  bool is_idle(const model::ParameterInfo& info) const {
    for (int64_t i = options().drafts_by_mtp ? 1 : 0; i < std::ssize(in_.spec.mtp); ++i)
      if (info.name.starts_with(fmt::format("layers.{}.", in_.spec.num_layers() + i))) return true;
    return false;
  }

  // Weights that a decode step reads.
  void count_decode_bytes(const model::ParameterStore& store) {
    for (const auto& info : store.infos())
      if (!info.encoding) count_decode_bytes(info);
    for (const auto& info : store.derived()) count_decode_bytes(info);
  }
  void count_decode_bytes(const model::ParameterInfo& info) {
    if (info.name == "embedding.weight" && !in_.spec.tied_embeddings) return;
    if (is_idle(info)) return;
    const auto bytes = static_cast<double>(
        info.num_elements() *
        tensor::dtype_bytes(info.dtype.value_or(tensor::compute_dtype(device_))));
    const bool is_expert = info.reduce_group == model::ReduceGroup::kExpert;
    (is_expert ? out_.decode_expert_bytes : out_.decode_dense_bytes) += bytes;
  }

  const dist::Groups& engine_groups() const {
    return in_.engines.num_ranks > 1 ? engine_grid_.groups() : dist::groups_of_one();
  }

  rollout::EngineOptions options() const {
    rollout::EngineOptions options = engine_options(config_.rollout, in_.longest_generated);
    options.decode_rates = in_.request.gpu.decode_rates();
    return options;
  }

  void start_engine(const tensor::Tensor& cache_memory) {
    if (engine_model_.decoder == nullptr) return;
    engine_ = std::make_unique<rollout::Engine>(
        *engine_model_.decoder, engine_model_.weights, device_, options(), rollout::TokenBytes{},
        in_.num_sampled_tokens, cache_memory, engine_groups());
  }

  // Weights that move between ranks need staging memory.
  void plan_hand_over() {
    const model::Layout trainer = make_model_layout(in_.spec, &ranks_);
    if (in_.transfers == nullptr)
      in_.transfers = std::make_shared<const model::WeightTransfers>(
          model::list_moved(trainer), model::list_moved(engine_model_.layout));
    hand_over_ = make_hand_over(trainer, store_, engine_model_,
                                in_.transfers->make_plans({{world_->rank()}})[0], *world_, device_);
  }

  // A run allocates the staging memory after the pool, on top of mem_fraction_static.
  void check_hand_over() {
    const tensor::DeviceKind& gpu = in_.request.gpu;
    if (gpu.is_cpu()) return;
    out_.used_bytes =
        tensor::allocation_counters(device_).live_bytes + gpu.held_bytes(in_.request.num_ranks);
    out_.missing_bytes = std::max<int64_t>(out_.used_bytes - gpu.memory_bytes, 0);
    if (out_.missing_bytes == 0) return;
    const double fraction =
        config_.rollout.mem_fraction_static -
        static_cast<double>(out_.missing_bytes) / static_cast<double>(gpu.memory_bytes);
    out_.turn = fmt::format(
        "rollout.mem_fraction_static: {:.2f}, because the hand-over of weights needs staging "
        "memory beside that share",
        std::floor(100 * fraction) / 100);
  }

  PoolUsers pool_users() const {
    return {.trainer = trainer_.get(),
            .frozen = frozen_,
            .policy = &store_,
            .longest_trained = in_.lengths.longest_trained,
            .engine = &engine_model_,
            .engine_options = options(),
            .num_sampled_tokens = in_.num_sampled_tokens,
            .engine_groups = &engine_groups()};
  }

  MemoryBudget plan_needs() {
    MemoryBudget budget{.device_bytes = in_.request.gpu.memory_bytes,
                        .mem_fraction = config_.rollout.mem_fraction_static,
                        .live = tensor::list_allocations(device_)};
    budget.used_bytes = in_.request.gpu.held_bytes(in_.request.num_ranks);
    for (const tensor::NamedBytes& named : budget.live) budget.used_bytes += named.bytes;
    const MemoryNeeds needs = list_needs(rank_inputs(), pool_users());
    if (needs.engine) {
      page_bytes_ = needs.engine->page_bytes;
      out_.bytes_per_cached_token =
          static_cast<double>(page_bytes_) / static_cast<double>(config_.rollout.page_size);
    }
    return add_needs(std::move(budget), needs);
  }

  void divide_memory(const MemoryBudget& budget) {
    out_.limit_bytes = MemoryPlan{.budget = budget}.share_bytes();
    out_.missing_bytes = missing_bytes(budget);
    out_.used_bytes = budget.used_bytes + budget.workspace_bytes;
    if (trains_)
      out_.training_bytes = budget.used_bytes - out_.engine_bytes + budget.activations.least;
    if (out_.missing_bytes > 0) {
      out_.turn = choose_keys(config_, budget, out_.engine_bytes, out_.missing_bytes);
      out_.needed_pool_bytes = out_.limit_bytes + out_.missing_bytes - out_.used_bytes;
      out_.used_bytes += out_.needed_pool_bytes;
      out_.kept = 0;
      return;
    }
    const tensor::Tensor cache =
        make_pool(rank_inputs(), pool_users(), plan_memory(budget), memory_);
    const MemoryPlan& plan = *memory_.plan;
    out_.pool_bytes = plan.pool_bytes;
    out_.cache_bytes = plan.cache_bytes;
    if (page_bytes_ > 0)
      out_.cache_tokens = plan.cache_bytes / page_bytes_ * config_.rollout.page_size;
    const double range =
        static_cast<double>(out_.activations.most) - static_cast<double>(out_.activations.least);
    if (range > 0)
      out_.kept = std::clamp(static_cast<double>(plan.pool_bytes - out_.activations.least) / range,
                             0.0, 1.0);
    if (config_.train.recompute_granularity == "full") out_.kept = 0;
    start_engine(cache);
    out_.used_bytes += plan.pool_bytes;
  }

  // Communication and FLOPs of a microbatch with samples of the mean length.
  void plan_microbatch() {
    const int cp = in_.grid.sizes().cp, tp = in_.grid.sizes().tp;
    const auto samples = mean_samples(in_.lengths, in_.samples_per_microbatch, cp);
    const double share = static_cast<double>(std::ssize(samples)) / (static_cast<double>(tp) * cp);
    out_.flops = share * stage_training_flops(in_.spec, out_.chunks, in_.lengths.mean());
    out_.forward_flops = share * stage_forward_flops(in_.spec, out_.chunks, in_.lengths.mean());
    const bool keeps_all = out_.kept > 0.5;
    grid_.clear_sent_bytes();  // drop the bytes of the largest microbatches
    trainer_->plans().plan_microbatch(
        samples, {.level = keeps_all ? model::LayerKeep::kAll : model::LayerKeep::kInputs});
    const auto microbatches = static_cast<double>(in_.microbatches);
    for (const PlannedExchange& exchange : list_exchanges(in_.grid, count_experts(in_.spec) > 0))
      add_link(exchange.what, exchange.axis,
               microbatches * static_cast<double>(grid_.sent_bytes(exchange.axis)));
  }

  double sum_bytes() const {
    double bytes = 0;
    std::vector<GridAxis> seen;
    for (const GridAxis axis : {GridAxis::kDpCp, GridAxis::kTpDpCp, GridAxis::kEdp}) {
      const bool is_counted = std::ranges::any_of(
          seen, [&](GridAxis other) { return in_.grid.are_alike(axis, other); });
      if (!is_counted) bytes += static_cast<double>(grid_.sent_bytes(axis));
      seen.push_back(axis);
    }
    return bytes;
  }

  void add_link(const std::string& what, GridAxis axis, double bytes) {
    if (bytes > 0)
      out_.links.push_back(make_link(in_.grid, ranks_.rank, in_.request.gpu, what, axis, bytes));
  }

  const StagePlanInputs& in_;
  const RunConfig& config_;
  tensor::Device device_;
  bool trains_;
  ModelRanks ranks_;
  dist::PlanningGrid grid_;
  model::ParameterStore store_;
  Decoders decoders_;
  dist::PlanningGrid engine_grid_;
  std::unique_ptr<dist::Collective> world_;
  std::vector<FrozenModel> frozen_;
  std::unique_ptr<train::Trainer> trainer_;
  EngineModel engine_model_;
  int64_t page_bytes_ = 0;
  SharedMemory memory_;
  std::unique_ptr<rollout::Engine> engine_;
  std::unique_ptr<WeightHandOver> hand_over_;
  PlannedStage out_;
};

}  // namespace

tensor::Device plan_device(const tensor::DeviceKind& gpu) {
  return gpu.is_cpu() ? tensor::Device{} : tensor::Device{tensor::DeviceType::kCuda, 0};
}

PlannedStage plan_stage(const StagePlanInputs& inputs, int stage) {
  const tensor::PlanningScope scope;
  return StagePlanner(inputs, stage).plan();
}

PlannedStage plan_generator(const StagePlanInputs& inputs) {
  const tensor::PlanningScope scope;
  return StagePlanner(inputs, std::nullopt).plan();
}

}  // namespace slimexx::rl
