// Activation memory of a trainer, and which activations layers keep in the memory they have.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/host.h"
#include "slimexx/ops/policy_loss.h"
#include "train/copied_gradients.h"
#include "train/memory/largest_microbatches.h"
#include "train/passes/executor.h"
#include "train/passes/scoring.h"
#include "train/step_routers.h"

namespace slimexx::train {
namespace {

using tensor::Arena;
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

}  // namespace

int64_t default_max_logits_bytes(tensor::Device device) {
  return device.is_cpu() ? int64_t{1} << 28 : int64_t{8} << 30;
}

void Trainer::borrow_memory(Tensor memory) {
  arena_.borrow(memory);
  peer_memories_ = dist::make_peer_memories(groups_, memory);
  is_planned_ = true;
}

void Trainer::leave_ranks() { dist::cancel(peer_memories_); }

void Trainer::limit_logits(int64_t max_logits_bytes) {
  head_options_.max_logits_bytes = max_logits_bytes;
}

std::vector<std::vector<Sample>> Trainer::largest_microbatches(int64_t longest_sequence,
                                                               int64_t num_samples) const {
  const model::Decoder& last = chunks_.back().decoder;
  model::HeadSpec head = last.local_spec().head();
  head.vocab_size /= groups_.tp.size();  // of this rank's logits
  const int64_t fixed =
      std::min(options_.micro_batch_size, num_samples) * std::max<int64_t>(longest_sequence, 2);
  return list_largest_microbatches(
      {.num_tokens = options_.use_dynamic_batch_size ? max_microbatch_tokens() : fixed,
       .num_samples = num_samples,
       .longest = longest_sequence,
       .kept_logit_rows = last.stage().has_head ? model::head_chunk_rows(head, head_options_)
                                                : std::numeric_limits<int64_t>::max(),
       .num_trained_mtp = num_trained_mtp_,
       .cp_size = groups_.cp.size()});
}

ActivationBytes Trainer::plan_activations(int64_t longest_sequence, int64_t num_samples) const {
  const SlotCounts counts = most_counts();
  SlotBytes least, most;
  for (const auto& samples : largest_microbatches(longest_sequence, num_samples)) {
    const auto indices = all_indices(samples);
    const auto measure = [&](model::KeepPlan keep) {
      return measure_step(samples, indices, fixed_keep().value_or(keep), counts,
                          MeasuredRank::kLargest);
    };
    least.grow_to(measure(kKeepLeast));
    most.grow_to(measure(kKeepAll));
  }
  // Scratch is fixed before the choice of what layers keep. In a stage with few layers,
  // recomputation may need more memory than keeping.
  least.scratch = most.scratch = std::max(least.scratch, most.scratch);
  least.kept += kTableBytes;
  most.kept += kTableBytes;
  ActivationBytes bytes{.least = std::max(measure_update(), bytes_of_slots(least, counts))};
  bytes.most = std::max(bytes.least, bytes_of_slots(most, counts));
  bytes.in_flight = static_cast<int64_t>(counts.slots);
  bytes.kept = least.kept;
  bytes.scratch = least.scratch;
  bytes.num_deferred = static_cast<int64_t>(counts.deferred);
  bytes.deferred = least.deferred;
  return bytes;
}

int64_t Trainer::plan_scoring(const StageDecoders& decoders, const model::ParameterStore& weights,
                              int64_t longest_sequence, int64_t num_samples) const {
  const std::vector<StageChunk> chunks = bind_chunks(decoders, weights, false);
  // Enough microbatches to need all slots.
  const size_t num_slots = count_slots(
      list_forward_operations(groups_.pp.rank(), shape(chunks.size()), 4 * groups_.pp.size()));
  SlotBytes bytes;
  for (const auto& samples : largest_microbatches(longest_sequence, num_samples)) {
    const std::vector<int64_t> all = all_indices(samples);
    const int64_t rows = most_ep_rows(count_tokens(samples, all));
    bytes.grow_to(measure_scoring({chunks, head_options_, samples, {&all, 1}}, groups_.pp.rank(),
                                  shape(chunks.size()), num_slots, device_, groups_, rows));
  }
  bytes.kept += kTableBytes;
  return bytes_of_slots(bytes, {num_slots});
}

int64_t Trainer::plan_microbatch(std::span<const Sample> samples, model::KeepPlan keep,
                                 MeasuredRank measured) const {
  const SlotCounts counts = most_counts();
  return bytes_of_slots(measure_step(samples, all_indices(samples), keep, counts, measured),
                        counts);
}

// Upper bound over the number of microbatches.
SlotCounts Trainer::most_counts() const {
  return count_all(list_most_operations(groups_.pp.rank(), shape(chunks_.size())));
}

// Upper bound on the tokens in the EP x ETP group when a microbatch of num_tokens meets any others
// of the pass. All ranks know all microbatches, so no communication is needed. The tp and cp ranks
// of a replica share its tokens.
int64_t Trainer::most_ep_rows(int64_t num_tokens) const {
  const int64_t ranks = int64_t{groups_.ep.size()} * groups_.etp.size();
  const int64_t of_replica = int64_t{groups_.tp.size()} * groups_.cp.size();
  const bool is_aligned = ranks % of_replica == 0 || of_replica % ranks == 0;
  const int64_t replicas = (ranks + of_replica - 1) / of_replica + (is_aligned ? 0 : 1);
  return replicas * std::max(num_tokens, most_tokens_);
}

// Slots of a step or a scoring pass: equal shares of the arena after the part that they share. A
// single slot gets all of it, with scratch after its kept tensors.
std::vector<Slot> Trainer::share_arena(const SlotPlan& plan) {
  const SlotCounts& counts = plan.counts;
  const SlotBytes& most = plan.most;
  const int64_t share = share_of_slots(arena_.capacity_bytes(), most, counts);
  const auto lend = [&](Arena& borrower, int64_t bytes) {
    borrower.borrow(arena_.allocate(DType::kU8, {bytes}));
  };
  for (size_t d = 0; d < counts.deferred; ++d) lend(deferred_arenas_[d], most.deferred);
  const auto work_in = [&](Arena& arena) {
    ops::Context ctx = ops::compute_context(arena, groups_);
    if (groups_.ep_memory != nullptr) ctx.most_ep_rows = most_ep_rows(0);
    return Slot{ctx};
  };
  std::vector<Slot> slots;
  if (counts.slots == 1) {
    slots.push_back(work_in(arena_));
    return slots;
  }
  lend(scratch_arena_, most.scratch);
  for (size_t s = 0; s < counts.slots; ++s) {
    lend(slot_arenas_[s], share);
    slots.push_back(work_in(slot_arenas_[s]));
  }
  return slots;
}

// Memory of one slot for forward, loss and backward of one microbatch.
SlotBytes Trainer::measure_step(std::span<const Sample> samples, std::span<const int64_t> indices,
                                model::KeepPlan keep, const SlotCounts& counts,
                                MeasuredRank measured) const {
  ops::PolicyLossOptions largest;
  largest.kind = ops::LossKind::kSft;
  largest.entropy_coef = 1;                                 // needs every optional tensor
  std::vector<std::vector<float>> weights(samples.size());  // only of this microbatch
  for (const int64_t i : indices)
    weights[static_cast<size_t>(i)].resize(samples[static_cast<size_t>(i)].loss_mask.size());
  const PipelineShape pipeline = shape(chunks_.size());
  std::vector<std::vector<int64_t>> microbatches(
      static_cast<size_t>(round_up_microbatches(pipeline, 1)));
  microbatches[0].assign(indices.begin(), indices.end());
  const auto operations = list_operations(groups_.pp.rank(), pipeline, std::ssize(microbatches));
  PlanningSlots plan(count_all(operations), counts.slots > 1, device_, groups_,
                     most_ep_rows(count_tokens(samples, indices)));
  const Tensor metrics(nullptr, DType::kF64, device_, {ops::kNumLossMetrics});
  MtpWork mtp = make_mtp_work({}, num_trained_mtp_, options_.mtp_loss_scaling_factor);
  mtp.metrics.assign(static_cast<size_t>(num_trained_mtp_), metrics);
  run_operations(operations,
                 {.chunks = chunks_,
                  .head = head_options_,
                  .samples = samples,
                  .microbatches = microbatches,
                  .token_weights = weights,
                  .loss = largest,
                  .metrics = metrics,
                  .choose_keep = [&](auto...) { return keep; },
                  .mtp = num_trained_mtp_ > 0 ? &mtp : nullptr,
                  .routers = routers_->balances(),
                  .deferred = plan.deferred(),
                  .measured = measured},
                 plan.slots());
  return plan.most_bytes();
}

int64_t Trainer::used_bytes() const {
  if (slot_arenas_.size() == 1 && deferred_arenas_.empty()) return arena_.high_water_bytes();
  int64_t bytes = scratch_arena_.high_water_bytes();
  for (const auto* arenas : {&slot_arenas_, &deferred_arenas_})
    for (const Arena& arena : *arenas) bytes += arena.high_water_bytes();
  return bytes;
}

int64_t Trainer::measure_update() const {
  Arena plan = Arena::for_planning(device_, arena_.what_for());
  const ops::Context ctx = ops::planning_context(plan, groups_);
  sum_tied_gradients(ctx);
  optimizer_.plan_step(ctx);
  copied_gradients_->sum(ctx);
  return plan.high_water_bytes();
}

std::optional<model::KeepPlan> Trainer::fixed_keep() const {
  if (options_.recompute_granularity == "none") return kKeepAll;
  if (options_.recompute_granularity == "full") return kKeepLeast;
  return std::nullopt;
}

// Which activations the layers of a microbatch keep. In planned memory: what fits into `more_bytes`
// above the minimum.
model::KeepPlan Trainer::choose_keep(size_t chunk, std::span<const Sample> samples,
                                     std::span<const int64_t> indices, int64_t more_bytes) const {
  if (fixed_keep() || !is_planned_) return fixed_keep().value_or(kKeepAll);
  const int64_t num_tokens = count_tokens(samples, indices);
  const model::Decoder& decoder = chunks_[chunk].decoder;
  // Upper bound on this cp and tp rank's rows: chunks of a sequence differ by a token.
  const int64_t cp = groups_.cp.size(), tp = groups_.tp.size();
  const int64_t rows = cp == 1 ? num_tokens : num_tokens / cp + 2 * std::ssize(indices);
  return model::choose_keep(decoder.local_spec(), decoder.stage(), device_,
                            {(rows + tp - 1) / tp, rows}, more_bytes);
}

// [microbatch * chunks + chunk]. If recomputation involves other ranks, all of them keep as little
// as the rank that keeps least.
std::vector<model::KeepPlan> Trainer::choose_keeps(std::span<const Sample> samples,
                                                   const Assignment& assignment,
                                                   const SlotPlan& plan) const {
  const int64_t share = share_of_slots(arena_.capacity_bytes(), plan.most, plan.counts);
  std::vector<model::KeepPlan> keeps;
  for (size_t m = 0; m < assignment.mine.size(); ++m)
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk)
      keeps.push_back(choose_keep(chunk, samples, assignment.mine[m], share - plan.least_kept[m]));
  if (fixed_keep() || !is_planned_ || host_.size() == 1) return keeps;
  if (groups_.tp.size() * groups_.cp.size() * groups_.ep.size() * groups_.etp.size() == 1)
    return keeps;
  constexpr int64_t kLevel = int64_t{1} << 32;
  std::vector<double> negated;  // whole numbers below 2^53
  for (const model::KeepPlan& keep : keeps)
    negated.push_back(
        -static_cast<double>(static_cast<int64_t>(keep.level) * kLevel + keep.num_raised));
  dist::all_reduce_max(host_, negated);
  for (size_t i = 0; i < keeps.size(); ++i) {
    const auto least = static_cast<int64_t>(-negated[i]);
    keeps[i] = {.level = static_cast<model::LayerKeep>(least / kLevel),
                .num_raised = least % kLevel};
  }
  return keeps;
}

}  // namespace slimexx::train
