#include "slimexx/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "copied_gradients.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/planning.h"
#include "slimexx/model/stages.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/tensor/planning.h"
#include "step_routers.h"
#include "train/passes/executor.h"
#include "train/passes/mtp_copies.h"
#include "train/passes/scoring.h"

namespace slimexx::train {
namespace {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMetricsBytes = ops::kNumLossMetrics * 8;  // F64

// The first tp rank of the last pipeline stage.
bool reports_own_rows(const dist::Groups& groups) {
  return groups.tp.rank() == 0 && groups.pp.rank() == groups.pp.size() - 1;
}

void check_schedule(const TrainOptions& options, const StageDecoders& decoders) {
  if (options.pipeline_schedule == "1f1b" || decoders.chunks.size() == 1) return;
  throw Error(ErrorCode::kUsage,
              "separate weight gradients (zb_h1) are not supported with several stages per rank",
              "set it to 1f1b, or leave out parallel.num_layers_per_virtual_pipeline_stage",
              "train.pipeline_schedule");
}

std::vector<int> list_reporters(dist::Collective& host, const dist::Groups& groups) {
  int64_t own = is_reporter(groups) ? groups.dp.rank() : -1;
  std::vector<int64_t> all(static_cast<size_t>(host.size()));
  host.all_gather({}, Tensor(all.data(), DType::kI64, {}, {std::ssize(all)}),
                  Tensor(&own, DType::kI64, {}, {1}));
  std::vector<int> reporters(static_cast<size_t>(groups.dp.size()));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] >= 0) reporters[static_cast<size_t>(all[rank])] = static_cast<int>(rank);
  return reporters;
}

// Group of the first and the last stage, if the last one holds a copy of the embedding. Collective
// over the pipeline.
std::unique_ptr<dist::Collective> make_embedding_group(const model::ModelSpec& spec,
                                                       const dist::Groups& groups) {
  const int rank = groups.pp.rank(), last = groups.pp.size() - 1;
  const bool has_copy =
      model::holds_embedding_copy(spec, {.has_embedding = last == 0, .has_head = true});
  if (!has_copy) return nullptr;
  const bool is_member = rank == 0 || rank == last;
  if (tensor::is_planning())
    return is_member ? dist::make_planning_group(rank == 0 ? 0 : 1, 2, groups.pp.device())
                     : nullptr;
  auto group = groups.pp.split(is_member ? 0 : 1, rank);
  return is_member ? std::move(group) : nullptr;
}

}  // namespace

Trainer::Trainer(const StageDecoders& decoders, model::ParameterStore& policy,
                 dist::Collective& host, const dist::Groups& groups, const TrainOptions& options,
                 const OptimizerOptions& optimizer_options, float temperature,
                 tensor::Device device, int64_t min_part_elements)
    : decoders_(decoders),
      spec_(decoders.chunks[0]->spec()),
      chunks_(bind_chunks(decoders, policy, true)),
      policy_(policy),
      host_(host),
      groups_(groups),
      is_reporter_(is_reporter(groups)),
      options_(options),
      head_options_{.temperature = temperature,
                    .max_logits_bytes = options.max_logits_gib
                                            ? static_cast<int64_t>(*options.max_logits_gib * 0x1p30)
                                            : default_max_logits_bytes(device)},
      device_(device),
      arena_(device, 0, "activations of microbatches"),
      scratch_arena_(device, 0, arena_.what_for()),
      embedding_ranks_(make_embedding_group(spec_, groups)),
      num_trained_mtp_(spec_.num_trained_mtp()),
      metrics_(device, (1 + num_trained_mtp_) * ops::kNumLossMetrics * 8, "loss metrics"),
      routers_(std::make_unique<StepRouters>(spec_, options, device)),
      copied_gradients_(std::make_unique<CopiedGradients>(chunks_, groups.tp)),
      mtp_copies_(std::make_unique<MtpCopies>(spec_, policy)),
      parts_(list_gradient_parts(policy, spec_, min_part_elements)),
      optimizer_(policy, host, groups, optimizer_options, device, parts_) {
  check_stages(decoders, groups);
  check_schedule(options, decoders);
  if (embedding_ranks_ != nullptr) {
    const StageChunk& chunk = groups.pp.rank() == 0 ? chunks_.front() : chunks_.back();
    embedding_ = chunk.weights.embedding;
    embedding_gradient_ = chunk.gradients.embedding;
  }
  const SlotCounts counts = most_counts();
  for (size_t s = 0; s < counts.slots; ++s)
    slot_arenas_.emplace_back(device, 0, arena_.what_for()).share_scratch(scratch_arena_);
  for (size_t d = 0; d < counts.deferred; ++d)
    deferred_arenas_.emplace_back(device, 0, arena_.what_for());
}

Trainer::~Trainer() = default;

ops::Context Trainer::context() { return ops::compute_context(arena_, groups_); }

PipelineShape Trainer::shape(size_t num_chunks) const {
  return make_pipeline_shape(options_, groups_.pp.size(), num_chunks);
}

Trainer::Assignment Trainer::assign(const StageDecoders& decoders, std::span<const Sample> samples,
                                    Bins microbatches) const {
  const std::vector<int64_t> lengths = lengths_of(samples);
  Assignment a;
  a.microbatches = std::move(microbatches);
  // MTP layers do not count: training them must not move a microbatch to another rank, as sums over
  // ranks would then differ in their last bits from those of a run without.
  std::vector<double> costs;
  for (const auto& microbatch : a.microbatches) {
    double cost = 0;
    int64_t tokens = 0;
    for (int64_t i : microbatch) {
      const int64_t length = lengths[static_cast<size_t>(i)];
      cost += model::forward_flops(decoders.chunks[0]->spec(), length);
      tokens += length;
    }
    costs.push_back(cost);
    a.room_tokens += std::max(tokens, max_microbatch_tokens());
  }
  Bins by_rank = assign_microbatches(costs, groups_.dp.size(), options_.balance_data);
  a.num_packed = std::ssize(a.microbatches);
  even_out(a.microbatches, by_rank, round_up_microbatches(shape(decoders.chunks.size()), 1));
  a.numbers = by_rank[static_cast<size_t>(groups_.dp.rank())];
  for (const int64_t m : a.numbers) a.mine.push_back(a.microbatches[static_cast<size_t>(m)]);
  a.owner.resize(a.microbatches.size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (int64_t m : by_rank[rank]) a.owner[static_cast<size_t>(m)] = static_cast<int>(rank);
  }
  return a;
}

void Trainer::clear_gradients() {
  for (const auto& group : policy_.groups())
    if (group.trainable) ops::fill_zero(context(), group.gradients);
}

// Zeroes gradients that the first microbatch adds to.
void Trainer::clear_before_backward() {
  for (const auto& info : policy_.infos()) {
    if (info.zero_before_backward && info.trainable)
      ops::fill_zero(context(), policy_.gradient(info.id));
  }
}

// Starts the reduction of all parts whose gradients are final, in part order. Called before the
// next layer's attention, which slows down least from it.
void Trainer::start_final_parts(const ops::Context& ctx) {
  for (; num_started_parts_ < parts_.size(); ++num_started_parts_) {
    if (parts_[num_started_parts_].last_stage > last_stage_done_) return;
    optimizer_.start_gradient_part(ctx, static_cast<int64_t>(num_started_parts_));
  }
}

void Trainer::finish_stage(const ops::Context& ctx, int64_t stage) {
  // Gradients of a tied embedding are not final before the other end's are added.
  if (embedding_ranks_ != nullptr && spec_.tied_embeddings && stage > spec_.num_layers()) return;
  last_stage_done_ = stage;
  // Layer 0 was the last one with attention, so start the remaining parts now.
  const bool has_attention_next = stage < spec_.num_layers();
  if (!has_attention_next) start_final_parts(ctx);
}

// Tied embeddings are one parameter; the first and the last stage each have a term of its gradient.
void Trainer::sum_tied_gradients(const ops::Context& ctx) const {
  if (embedding_ranks_ == nullptr || !spec_.tied_embeddings) return;
  if (!embedding_gradient_.defined()) return;  // frozen
  embedding_ranks_->all_reduce_sum(ctx.stream, ctx.arena, embedding_gradient_,
                                   dist::SumOrder::kAny);
}

MtpWork Trainer::mtp_work(std::span<const Sample> samples) const {
  MtpWork work = make_mtp_work(samples, num_trained_mtp_, options_.mtp_loss_scaling_factor);
  for (int64_t k = 1; k <= num_trained_mtp_; ++k)
    work.metrics.push_back(metrics_.view(DType::kF64, {ops::kNumLossMetrics}, k * kMetricsBytes));
  return work;
}

std::vector<double> Trainer::run_microbatches(std::span<const Sample> samples,
                                              const Assignment& assignment, const StepLoss& loss,
                                              std::span<const Operation> operations,
                                              const SlotPlan& plan) {
  const ops::Context ctx = context();
  const Tensor all_sums =
      metrics_.view(DType::kF64, {(1 + num_trained_mtp_) * ops::kNumLossMetrics});
  ops::fill_zero(ctx, all_sums);
  routers_->start_step(ctx, std::ssize(samples));
  const MtpWork mtp = mtp_work(samples);
  num_started_parts_ = 0;
  last_stage_done_ = -1;
  StageHooks hooks;
  // Copied kv heads must be summed before the replicas, and only after the last backward; then no
  // part starts early.
  if (optimizer_.sums_beside() && copied_gradients_->empty())
    hooks = {.stage_done = [&](int64_t stage) { finish_stage(ctx, stage); },
             .attention_next = [&] { start_final_parts(ctx); }};
  const auto weights = token_weights(samples, loss);
  const std::vector<model::KeepPlan> keeps = choose_keeps(samples, assignment, plan);
  if (!assignment.mine.back().empty()) keep_ = keeps.back();
  const tensor::Arena::Mark mark = arena_.mark();
  std::vector<Slot> slots = share_arena(plan);
  std::vector<ops::DeferredProducts> deferred(deferred_arenas_.begin(), deferred_arenas_.end());
  run_operations(operations,
                 {.chunks = chunks_,
                  .head = head_options_,
                  .samples = samples,
                  .microbatches = assignment.mine,
                  .token_weights = weights,
                  .loss = loss.policy,
                  .metrics = metrics_.view(DType::kF64, {ops::kNumLossMetrics}),
                  .choose_keep =
                      [&](size_t chunk, int64_t microbatch) {
                        return keeps[static_cast<size_t>(microbatch) * chunks_.size() + chunk];
                      },
                  .mtp = num_trained_mtp_ > 0 ? &mtp : nullptr,
                  .routers = routers_->balances(),
                  .last_backward = std::move(hooks),
                  .deferred = deferred},
                 slots);
  arena_.release_to(mark);
  sum_tied_gradients(ctx);
  copied_gradients_->sum(ctx);
  optimizer_.start_remaining_parts(ctx);
  std::vector<double> sums(static_cast<size_t>(all_sums.num_elements()));
  tensor::download(ctx.stream, sums.data(), all_sums);
  // Each cp rank has the whole policy loss, so only one of them reports it. MTP losses cover the
  // rank's own rows, so every cp rank reports them.
  if (!is_reporter_) std::fill_n(sums.begin(), ops::kNumLossMetrics, 0);
  if (!reports_own_rows(groups_)) std::ranges::fill(sums, 0);
  routers_->append_sums(ctx, sums);
  return sums;
}

StepResult Trainer::step(std::span<const Sample> samples, const StepLoss& loss,
                         double learning_rate, const std::function<void()>& before_update) {
  Assignment assignment;
  std::vector<Operation> operations;
  const auto reserve = [&](const Assignment& a) {
    operations = list_operations(groups_.pp.rank(), shape(chunks_.size()), std::ssize(a.mine));
    return reserve_for_step(samples, a, count_all(operations));
  };
  const SlotPlan plan = assign_fitting(decoders_, samples, reserve, assignment);
  clear_before_backward();
  StepResult result;
  result.learning_rate = learning_rate;
  result.total_weight = sum_token_weights(samples, loss);
  std::vector<double> sums = run_microbatches(samples, assignment, loss, operations, plan);

  constexpr auto kMax = static_cast<size_t>(ops::LossMetric::kLogProbMaxDiff);
  constexpr auto kLoss = static_cast<size_t>(ops::LossMetric::kLoss);
  double largest[1] = {sums[kMax]};
  dist::all_reduce_sum(host_, sums);
  dist::all_reduce_max(host_, largest);
  std::copy_n(sums.begin(), ops::kNumLossMetrics, result.metrics);
  result.metrics[kMax] = largest[0];
  size_t at = ops::kNumLossMetrics;
  for (int64_t k = 0; k < num_trained_mtp_; ++k, at += ops::kNumLossMetrics)
    result.mtp_losses.push_back(sums[at + kLoss]);
  result.routers = routers_->read_sums(std::span(sums).subspan(at));
  result.num_microbatches = assignment.num_packed;
  result.microbatches_per_rank = std::ssize(assignment.mine);
  result.packed_room_tokens = assignment.room_tokens;
  for (const auto& sample : samples) {
    const auto length = static_cast<int64_t>(sample.tokens.size());
    result.num_tokens += length;
    result.flops +=
        3 * (model::forward_flops(spec_, length) + model::mtp_forward_flops(spec_, length));
  }
  result.flops -= model::frozen_weight_flops(spec_, model::whole_model(spec_), result.num_tokens);
  const PhaseScope phase("optimizer");
  result.gradient_norm = optimizer_.reduce_gradients(context());
  if (before_update) before_update();
  result.skipped = !std::isfinite(result.gradient_norm);
  if (result.skipped) return result;
  mtp_copies_->find_equal(context(), host_);
  const auto start = std::chrono::steady_clock::now();
  optimizer_.step(context(), learning_rate, result.gradient_norm);
  if (optimizer_.host_bytes() > 0) {
    tensor::synchronize(context().stream);
    result.update_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  publish_embedding();  // the last stage's copy may have added in another order
  mtp_copies_->follow(context());
  for (const StageChunk& chunk : chunks_)
    routers_->move_biases(context(), chunk.decoder.stage(), chunk.weights);
  return result;
}

void Trainer::publish_embedding() {
  if (embedding_ranks_ != nullptr) embedding_ranks_->broadcast(context().stream, embedding_, 0);
}

void Trainer::gather_gradients() { optimizer_.gather_gradients(context()); }

std::vector<TokenScores> Trainer::compute_log_probs(const StageDecoders& decoders,
                                                    const model::ParameterStore& store,
                                                    std::span<const Sample> samples) {
  check_stages(decoders, groups_);
  const std::vector<StageChunk> chunks = bind_chunks(decoders, store, false);
  Assignment assignment;
  std::vector<Operation> operations;
  const auto reserve = [&](const Assignment& a) {
    operations =
        list_forward_operations(groups_.pp.rank(), shape(chunks.size()), std::ssize(a.mine));
    return reserve_for_scoring({chunks, head_options_, samples, a.mine}, a,
                               count_slots(operations));
  };
  const SlotPlan plan = assign_fitting(decoders, samples, reserve, assignment);
  const ScoringWork work{chunks, head_options_, samples, assignment.mine};
  std::string mine;  // all scores of this replica's microbatches, one after another
  {
    const tensor::ArenaScope scope(arena_);
    std::vector<Slot> slots = share_arena(plan);
    run_scoring(operations, work, slots, mine);
  }
  if (!is_reporter_) mine.clear();
  if (reporters_.empty()) reporters_ = list_reporters(host_, groups_);
  const std::vector<std::string> all = dist::all_gather_bytes(host_, mine);
  std::vector<TokenScores> scores(samples.size());
  std::vector<size_t> read(all.size(), 0);
  for (size_t m = 0; m < assignment.microbatches.size(); ++m) {
    const auto rank = static_cast<size_t>(reporters_[static_cast<size_t>(assignment.owner[m])]);
    read_scores(all[rank], read[rank], samples, assignment.microbatches[m], scores);
  }
  return scores;
}

}  // namespace slimexx::train
