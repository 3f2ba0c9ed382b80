#include "slimexx/train/trainer.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/host.h"
#include "slimexx/model/encoding.h"
#include "slimexx/ops/elementwise.h"
#include "train/gradient_reduction.h"
#include "train/memory/assignment.h"
#include "train/passes/mtp_copies.h"
#include "train/passes/scoring.h"
#include "train/score_exchange.h"
#include "train/step_sums.h"

namespace slimexx::train {
namespace {

void check_schedule(const TrainOptions& options, const StageDecoders& decoders) {
  if (options.pipeline_schedule == "1f1b" || decoders.chunks.size() == 1) return;
  throw Error(ErrorCode::kUsage,
              "separate weight gradients (zb_h1) are not supported with several stages per rank",
              "set it to 1f1b, or leave out parallel.num_layers_per_virtual_pipeline_stage",
              "train.pipeline_schedule");
}

std::unique_ptr<TrainedStages> make_stages(const StageDecoders& decoders,
                                           model::ParameterStore& policy, dist::Collective& host,
                                           const dist::Groups& groups, const TrainOptions& options,
                                           float temperature, tensor::Device device) {
  check_stages(decoders, groups);
  check_schedule(options, decoders);
  const int64_t max_logits_bytes = options.max_logits_gib
                                       ? static_cast<int64_t>(*options.max_logits_gib * 0x1p30)
                                       : default_max_logits_bytes(device);
  return std::make_unique<TrainedStages>(
      TrainedStages{.decoders = decoders,
                    .spec = decoders.chunks[0]->spec(),
                    .chunks = bind_chunks(decoders, policy, true),
                    .policy = policy,
                    .host = host,
                    .groups = groups,
                    .options = options,
                    .head = {.temperature = temperature, .max_logits_bytes = max_logits_bytes},
                    .device = device});
}

// Zeroes gradients that the first microbatch adds to.
void clear_before_backward(const ops::Context& ctx, model::ParameterStore& policy) {
  for (const auto& info : policy.infos()) {
    if (info.zero_before_backward && info.trainable) ops::fill_zero(ctx, policy.gradient(info.id));
  }
}

// Counts the samples of a step and their work.
void count_work(std::span<const Sample> samples, const model::ModelSpec& spec, StepResult& result) {
  for (const auto& sample : samples) {
    const auto length = static_cast<int64_t>(sample.tokens.size());
    result.num_tokens += length;
    result.flops +=
        3 * (model::forward_flops(spec, length) + model::mtp_forward_flops(spec, length));
  }
  result.flops -= model::frozen_weight_flops(spec, model::whole_model(spec), result.num_tokens);
}

}  // namespace

Trainer::Trainer(const StageDecoders& decoders, model::ParameterStore& policy,
                 dist::Collective& host, const dist::Groups& groups, const TrainOptions& options,
                 const OptimizerOptions& optimizer_options, float temperature,
                 tensor::Device device, int64_t min_part_elements)
    : stages_(make_stages(decoders, policy, host, groups, options, temperature, device)),
      memory_(std::make_unique<ActivationMemory>(device, stages_->groups, most_counts(*stages_))),
      sums_(std::make_unique<StepSums>(*stages_)),
      reduction_(
          std::make_unique<GradientReduction>(*stages_, optimizer_options, min_part_elements)),
      mtp_copies_(std::make_unique<MtpCopies>(stages_->spec, policy)),
      plans_(std::make_unique<ActivationPlans>(*stages_, *memory_, *reduction_, sums_->balances())),
      assigner_(std::make_unique<Assigner>(*stages_, *memory_)),
      score_exchange_(std::make_unique<ScoreExchange>(*stages_)),
      changed_(policy.derived().empty() ? tensor::Buffer()
                                        : tensor::Buffer(device, 8, "blocks of encoded weights")) {}

Trainer::~Trainer() = default;

double Trainer::weight_norm() { return optimizer().weight_norm(memory_->context()); }

ShardedAdamW& Trainer::optimizer() { return reduction_->optimizer(); }

void Trainer::clear_gradients() {
  for (const auto& group : stages_->policy.groups())
    if (group.trainable) ops::fill_zero(memory_->context(), group.gradients);
}

std::vector<double> Trainer::run_microbatches(std::span<const Sample> samples,
                                              const Assignment& assignment, const StepLoss& loss,
                                              std::span<const Operation> operations,
                                              const SlotPlan& plan, StepResult& result) {
  const std::vector<StageChunk>& chunks = stages_->chunks;
  const ops::Context ctx = memory_->context();
  sums_->start_step(ctx, std::ssize(samples));
  const MtpWork mtp = sums_->mtp_work(samples);
  StageHooks hooks = reduction_->start_step(ctx);
  const auto weights = token_weights(samples, loss);
  const std::vector<model::KeepPlan> keeps = plans_->choose_keeps(samples, assignment, plan);
  if (!assignment.mine.back().empty()) result.keep = keeps.back();
  const tensor::Arena::Mark mark = ctx.arena.mark();
  std::vector<Slot> slots = memory_->share(plan, plans_->most_ep_rows(0));
  const std::span<tensor::Arena> arenas = memory_->deferred();
  std::vector<ops::DeferredProducts> deferred(arenas.begin(), arenas.end());
  run_operations(operations,
                 {.chunks = chunks,
                  .head = stages_->head,
                  .samples = samples,
                  .microbatches = assignment.mine,
                  .token_weights = weights,
                  .loss = loss.policy,
                  .metrics = sums_->loss_metrics(),
                  .choose_keep =
                      [&](size_t chunk, int64_t microbatch) {
                        return keeps[static_cast<size_t>(microbatch) * chunks.size() + chunk];
                      },
                  .mtp = mtp.metrics.empty() ? nullptr : &mtp,
                  .routers = sums_->balances(),
                  .last_backward = std::move(hooks),
                  .deferred = deferred},
                 slots);
  ctx.arena.release_to(mark);
  reduction_->finish_step(ctx);
  return sums_->download(ctx);
}

StepResult Trainer::step(std::span<const Sample> samples, const StepLoss& loss,
                         double learning_rate, const std::function<void()>& before_update) {
  Assignment assignment;
  std::vector<Operation> operations;
  const auto reserve = [&](const Assignment& a) {
    operations = list_operations(stages_->groups.pp.rank(), stages_->shape(stages_->chunks.size()),
                                 std::ssize(a.mine));
    return plans_->reserve_for_step(samples, a, count_all(operations));
  };
  const SlotPlan plan = assigner_->assign_fitting(stages_->decoders, samples, reserve, assignment);
  clear_before_backward(memory_->context(), stages_->policy);
  StepResult result;
  result.learning_rate = learning_rate;
  result.total_weight = sum_token_weights(samples, loss);
  std::vector<double> sums = run_microbatches(samples, assignment, loss, operations, plan, result);

  constexpr auto kMax = static_cast<size_t>(ops::LossMetric::kLogProbMaxDiff);
  double largest[1] = {sums[kMax]};
  dist::all_reduce_sum(stages_->host, sums);
  dist::all_reduce_max(stages_->host, largest);
  sums_->read(sums, result);
  result.metrics[kMax] = largest[0];
  result.num_microbatches = assignment.num_packed;
  result.microbatches_per_rank = std::ssize(assignment.mine);
  result.packed_room_tokens = assignment.room_tokens;
  count_work(samples, stages_->spec, result);
  const PhaseScope phase("optimizer");
  result.gradient_norm = optimizer().reduce_gradients(memory_->context());
  if (before_update) before_update();
  result.skipped = !std::isfinite(result.gradient_norm);
  if (result.skipped) return result;
  mtp_copies_->find_equal(memory_->context(), stages_->host);
  const auto start = std::chrono::steady_clock::now();
  optimizer().step(memory_->context(), learning_rate, result.gradient_norm);
  if (optimizer().host_bytes() > 0) {
    tensor::synchronize(memory_->context().stream);
    result.update_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  publish_embedding();  // the copy's own sums may be added in another order
  mtp_copies_->follow(memory_->context());
  sums_->move_biases(memory_->context());
  encode_weights(&result);
  return result;
}

void Trainer::publish_embedding() { reduction_->publish_embedding(memory_->context()); }

void Trainer::encode_weights(StepResult* result) {
  const model::ParameterStore& policy = stages_->policy;
  if (policy.derived().empty()) return;
  const ops::Context ctx = memory_->context();
  const tensor::Tensor changed = changed_.view(tensor::DType::kI64, {1});
  int64_t count = 0;
  tensor::upload(ctx.stream, changed, &count);
  model::encode_weights(ctx, policy, changed);
  if (result == nullptr) return;
  tensor::download(ctx.stream, &count, changed);
  double sums[2] = {static_cast<double>(count), 0};
  for (const model::ParameterInfo& info : policy.infos())
    if (info.encoding) sums[1] += static_cast<double>(info.num_elements());
  dist::all_reduce_sum(stages_->host, sums);
  result->fp8_changed = sums[0] / sums[1];
}

void Trainer::gather_gradients() { optimizer().gather_gradients(memory_->context()); }

std::vector<TokenScores> Trainer::compute_log_probs(const StageDecoders& decoders,
                                                    const model::ParameterStore& store,
                                                    std::span<const Sample> samples) {
  check_stages(decoders, stages_->groups);
  const std::vector<StageChunk> chunks = bind_chunks(decoders, store, false);
  Assignment assignment;
  std::vector<Operation> operations;
  const auto reserve = [&](const Assignment& a) {
    operations = list_forward_operations(stages_->groups.pp.rank(), stages_->shape(chunks.size()),
                                         std::ssize(a.mine));
    return plans_->reserve_for_scoring({chunks, stages_->head, samples, a.mine}, a,
                                       count_slots(operations));
  };
  const SlotPlan plan = assigner_->assign_fitting(decoders, samples, reserve, assignment);
  const ScoringWork work{chunks, stages_->head, samples, assignment.mine};
  std::string mine;  // all scores of this replica's microbatches, one after another
  {
    const ops::Context ctx = memory_->context();
    const tensor::ArenaScope scope(ctx.arena);
    std::vector<Slot> slots = memory_->share(plan, plans_->most_ep_rows(0));
    run_scoring(operations, work, slots, mine);
  }
  return score_exchange_->gather(std::move(mine), assignment, samples);
}

}  // namespace slimexx::train
