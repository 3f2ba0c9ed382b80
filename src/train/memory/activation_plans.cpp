#include "slimexx/train/activation_plans.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "slimexx/dist/host.h"
#include "slimexx/ops/policy_loss.h"
#include "train/gradient_reduction.h"
#include "train/memory/assignment.h"
#include "train/memory/largest_microbatches.h"
#include "train/passes/scoring.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr model::KeepPlan kKeepAll{.level = model::LayerKeep::kAll};
constexpr model::KeepPlan kKeepLeast{.level = model::LayerKeep::kInputs};
// Slack per slot. Tables with an element per sample or row are padded to the arena's alignment, so
// that a smaller microbatch may take some hundred bytes more than a larger one.
constexpr int64_t kTableBytes = 8192;

std::vector<int64_t> all_indices(std::span<const Sample> samples) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < samples.size(); ++i) indices.push_back(static_cast<int64_t>(i));
  return indices;
}

// `microbatches`: slot bytes of each microbatch alone, in the order of SlotPlan::too_large.
// Microbatches with one sample are placed first, because they cannot be split.
void place_in(SlotPlan& plan, std::span<const SlotBytes> microbatches,
              std::span<const std::vector<int64_t>> indices, int64_t capacity) {
  std::vector<size_t> order(microbatches.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t m) { return indices[m].size(); });
  plan.too_large.assign(microbatches.size(), 0);
  for (const size_t m : order) {
    SlotBytes with = plan.most;
    with.grow_to(microbatches[m]);
    const int64_t bytes = bytes_of_slots(with, plan.counts);
    if (bytes <= capacity)
      plan.most = with;
    else
      plan.too_large[m] = bytes;
  }
}

int64_t count_most_tokens(std::span<const Sample> samples, const Bins& microbatches) {
  int64_t most = 0;
  for (const auto& indices : microbatches) most = std::max(most, count_tokens(samples, indices));
  return most;
}

std::optional<model::KeepPlan> fixed_keep(const TrainOptions& options) {
  if (options.recompute_granularity == "none") return kKeepAll;
  if (options.recompute_granularity == "full") return kKeepLeast;
  return std::nullopt;
}

std::vector<std::vector<Sample>> largest_microbatches(const TrainedStages& stages,
                                                      int64_t longest_sequence,
                                                      int64_t num_samples) {
  const model::Decoder& last = stages.chunks.back().decoder;
  model::HeadSpec head = last.local_spec().head();
  head.vocab_size /= stages.groups.tp.size();  // of this rank's logits
  const int64_t fixed = std::min(stages.options.micro_batch_size, num_samples) *
                        std::max<int64_t>(longest_sequence, 2);
  return list_largest_microbatches(
      {.num_tokens = stages.options.use_dynamic_batch_size ? stages.max_microbatch_tokens() : fixed,
       .num_samples = num_samples,
       .longest = longest_sequence,
       .kept_logit_rows = last.stage().has_head ? model::head_chunk_rows(head, stages.head)
                                                : std::numeric_limits<int64_t>::max(),
       .num_trained_mtp = stages.spec.num_trained_mtp(),
       .cp_size = stages.groups.cp.size()});
}

// The activations of a microbatch that fit into `more_bytes` above the minimum.
model::KeepPlan choose_keep(const TrainedStages& stages, size_t chunk,
                            std::span<const Sample> samples, std::span<const int64_t> indices,
                            int64_t more_bytes) {
  const int64_t num_tokens = count_tokens(samples, indices);
  const model::Decoder& decoder = stages.chunks[chunk].decoder;
  // Upper bound on this cp and tp rank's rows: chunks of a sequence differ by a token.
  const int64_t cp = stages.groups.cp.size(), tp = stages.groups.tp.size();
  const int64_t rows = cp == 1 ? num_tokens : num_tokens / cp + 2 * std::ssize(indices);
  return model::choose_keep(decoder.local_spec(), decoder.stage(), stages.device,
                            {(rows + tp - 1) / tp, rows}, more_bytes);
}

}  // namespace

int64_t default_max_logits_bytes(tensor::Device device) {
  return device.is_cpu() ? int64_t{1} << 28 : int64_t{8} << 30;
}

void ActivationPlans::limit_logits(int64_t max_logits_bytes) {
  stages_.head.max_logits_bytes = max_logits_bytes;
}

int64_t ActivationPlans::max_logits_bytes() const { return stages_.head.max_logits_bytes; }

ActivationBytes ActivationPlans::plan_activations(int64_t longest_sequence,
                                                  int64_t num_samples) const {
  const SlotCounts counts = most_counts(stages_);
  SlotBytes least, most;
  for (const auto& samples : largest_microbatches(stages_, longest_sequence, num_samples)) {
    const auto indices = all_indices(samples);
    const auto measure = [&](model::KeepPlan keep) {
      return measure_step(samples, indices, fixed_keep(stages_.options).value_or(keep), counts,
                          MeasuredRank::kLargest);
    };
    least.grow_to(measure(kKeepLeast));
    most.grow_to(measure(kKeepAll));
  }
  // Scratch is fixed before the choice of the activations that layers keep. In a stage with few
  // layers, recomputation may need more memory than keeping.
  least.scratch = most.scratch = std::max(least.scratch, most.scratch);
  least.kept += kTableBytes;
  most.kept += kTableBytes;
  ActivationBytes bytes{.least =
                            std::max(reduction_.measure_update(), bytes_of_slots(least, counts))};
  bytes.most = std::max(bytes.least, bytes_of_slots(most, counts));
  bytes.in_flight = static_cast<int64_t>(counts.slots);
  bytes.kept = least.kept;
  bytes.scratch = least.scratch;
  bytes.num_deferred = static_cast<int64_t>(counts.deferred);
  bytes.deferred = least.deferred;
  return bytes;
}

int64_t ActivationPlans::plan_scoring(int64_t longest_sequence, int64_t num_samples) const {
  return plan_scoring(stages_.decoders, stages_.policy, longest_sequence, num_samples);
}

int64_t ActivationPlans::plan_scoring(const StageDecoders& decoders,
                                      const model::ParameterStore& weights,
                                      int64_t longest_sequence, int64_t num_samples) const {
  const std::vector<StageChunk> chunks = bind_chunks(decoders, weights, false);
  // Enough microbatches to need all slots.
  const size_t num_slots = count_slots(list_forward_operations(
      stages_.groups.pp.rank(), stages_.shape(chunks.size()), 4 * stages_.groups.pp.size()));
  SlotBytes bytes;
  for (const auto& samples : largest_microbatches(stages_, longest_sequence, num_samples)) {
    const std::vector<int64_t> all = all_indices(samples);
    const int64_t rows = most_ep_rows(count_tokens(samples, all));
    bytes.grow_to(measure_scoring({chunks, stages_.head, samples, {&all, 1}},
                                  stages_.groups.pp.rank(), stages_.shape(chunks.size()), num_slots,
                                  stages_.device, stages_.groups, rows));
  }
  bytes.kept += kTableBytes;
  return bytes_of_slots(bytes, {num_slots});
}

int64_t ActivationPlans::plan_microbatch(std::span<const Sample> samples, model::KeepPlan keep,
                                         MeasuredRank measured) const {
  const SlotCounts counts = most_counts(stages_);
  return bytes_of_slots(measure_step(samples, all_indices(samples), keep, counts, measured),
                        counts);
}

// The tp and cp ranks of a replica share its tokens.
int64_t ActivationPlans::most_ep_rows(int64_t num_tokens) const {
  const int64_t ranks = int64_t{stages_.groups.ep.size()} * stages_.groups.etp.size();
  const int64_t of_replica = int64_t{stages_.groups.tp.size()} * stages_.groups.cp.size();
  const bool is_aligned = ranks % of_replica == 0 || of_replica % ranks == 0;
  const int64_t replicas = (ranks + of_replica - 1) / of_replica + (is_aligned ? 0 : 1);
  return replicas * std::max(num_tokens, most_tokens_);
}

// Memory of one slot for forward, loss and backward of one microbatch.
SlotBytes ActivationPlans::measure_step(std::span<const Sample> samples,
                                        std::span<const int64_t> indices, model::KeepPlan keep,
                                        const SlotCounts& counts, MeasuredRank measured) const {
  ops::PolicyLossOptions largest;
  largest.kind = ops::LossKind::kSft;
  largest.entropy_coef = 1;                                 // needs every optional tensor
  std::vector<std::vector<float>> weights(samples.size());  // only of this microbatch
  for (const int64_t i : indices)
    weights[static_cast<size_t>(i)].resize(samples[static_cast<size_t>(i)].loss_mask.size());
  const PipelineShape pipeline = stages_.shape(stages_.chunks.size());
  std::vector<std::vector<int64_t>> microbatches(
      static_cast<size_t>(round_up_microbatches(pipeline, 1)));
  microbatches[0].assign(indices.begin(), indices.end());
  const auto operations =
      list_operations(stages_.groups.pp.rank(), pipeline, std::ssize(microbatches));
  PlanningSlots plan(count_all(operations), counts.slots > 1, stages_.device, stages_.groups,
                     most_ep_rows(count_tokens(samples, indices)));
  const Tensor metrics(nullptr, DType::kF64, stages_.device, {ops::kNumLossMetrics});
  MtpWork mtp =
      make_mtp_work({}, stages_.spec.num_trained_mtp(), stages_.options.mtp_loss_scaling_factor);
  mtp.metrics.assign(static_cast<size_t>(stages_.spec.num_trained_mtp()), metrics);
  run_operations(operations,
                 {.chunks = stages_.chunks,
                  .head = stages_.head,
                  .samples = samples,
                  .microbatches = microbatches,
                  .token_weights = weights,
                  .loss = largest,
                  .metrics = metrics,
                  .choose_keep = [&](auto...) { return keep; },
                  .mtp = stages_.spec.num_trained_mtp() > 0 ? &mtp : nullptr,
                  .routers = balances_,
                  .deferred = plan.deferred(),
                  .measured = measured},
                 plan.slots());
  return plan.most_bytes();
}

SlotPlan ActivationPlans::reserve_for_step(std::span<const Sample> samples,
                                           const Assignment& assignment, const SlotCounts& counts) {
  most_tokens_ = count_most_tokens(samples, assignment.microbatches);
  const bool is_open =
      memory_.is_planned() && !fixed_keep(stages_.options);  // what layers keep is chosen later
  SlotPlan plan{.counts = counts, .most = {}};
  std::vector<SlotBytes> microbatches;
  for (const auto& indices : assignment.mine) {
    const auto measure = [&](model::KeepPlan keep) {
      return measure_step(samples, indices, fixed_keep(stages_.options).value_or(keep), counts,
                          MeasuredRank::kOwn);
    };
    SlotBytes& bytes = microbatches.emplace_back(
        measure({.level = is_open ? model::LayerKeep::kInputs : model::LayerKeep::kAll}));
    plan.least_kept.push_back(bytes.kept);
    if (is_open && counts.slots > 1)  // as plan_activations
      bytes.scratch = std::max(bytes.scratch, measure({.level = model::LayerKeep::kAll}).scratch);
  }
  place_in(plan, microbatches, assignment.mine,
           memory_.is_planned() ? memory_.capacity_bytes() : std::numeric_limits<int64_t>::max());
  if (!memory_.is_planned())
    memory_.reserve(std::max(bytes_of_slots(plan.most, counts), reduction_.measure_update()));
  return plan;
}

SlotPlan ActivationPlans::reserve_for_scoring(const ScoringWork& work, const Assignment& assignment,
                                              size_t num_slots) {
  most_tokens_ = count_most_tokens(work.samples, assignment.microbatches);
  SlotPlan plan{.counts = {num_slots}, .most = {}};
  std::vector<SlotBytes> microbatches;
  for (const auto& indices : work.microbatches)
    microbatches.push_back(measure_scoring(
        {work.chunks, work.head, work.samples, {&indices, 1}}, stages_.groups.pp.rank(),
        stages_.shape(work.chunks.size()), num_slots, stages_.device, stages_.groups,
        most_ep_rows(count_tokens(work.samples, indices))));
  place_in(plan, microbatches, work.microbatches,
           memory_.is_planned() ? memory_.capacity_bytes() : std::numeric_limits<int64_t>::max());
  if (!memory_.is_planned()) memory_.reserve(bytes_of_slots(plan.most, plan.counts));
  return plan;
}

std::vector<model::KeepPlan> ActivationPlans::choose_keeps(std::span<const Sample> samples,
                                                           const Assignment& assignment,
                                                           const SlotPlan& plan) const {
  const int64_t share = share_of_slots(memory_.capacity_bytes(), plan.most, plan.counts);
  const bool is_chosen = memory_.is_planned() && !fixed_keep(stages_.options);
  std::vector<model::KeepPlan> keeps;
  for (size_t m = 0; m < assignment.mine.size(); ++m)
    for (size_t chunk = 0; chunk < stages_.chunks.size(); ++chunk)
      keeps.push_back(is_chosen ? choose_keep(stages_, chunk, samples, assignment.mine[m],
                                              share - plan.least_kept[m])
                                : fixed_keep(stages_.options).value_or(kKeepAll));
  if (!is_chosen || stages_.host.size() == 1) return keeps;
  if (stages_.groups.tp.size() * stages_.groups.cp.size() * stages_.groups.ep.size() *
          stages_.groups.etp.size() ==
      1)
    return keeps;
  constexpr int64_t kLevel = int64_t{1} << 32;
  std::vector<double> negated;  // whole numbers below 2^53
  for (const model::KeepPlan& keep : keeps)
    negated.push_back(
        -static_cast<double>(static_cast<int64_t>(keep.level) * kLevel + keep.num_raised));
  dist::all_reduce_max(stages_.host, negated);
  for (size_t i = 0; i < keeps.size(); ++i) {
    const auto least = static_cast<int64_t>(-negated[i]);
    keeps[i] = {.level = static_cast<model::LayerKeep>(least / kLevel),
                .num_raised = least % kLevel};
  }
  return keeps;
}

}  // namespace slimexx::train
