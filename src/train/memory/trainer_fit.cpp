// Microbatches of a step or a scoring pass, and their memory. In planned memory, microbatches that
// do not fit are split.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "train/passes/executor.h"
#include "train/passes/scoring.h"

namespace slimexx::train {
namespace {

// `microbatches`: slot bytes of each microbatch alone, in the order of SlotPlan::too_large. Those
// with one sample are placed first, because they cannot be split.
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

[[noreturn]] void throw_too_long(int64_t num_tokens, double bytes, double capacity) {
  throw dist::AgreedError(Error(
      ErrorCode::kEnvironment,
      fmt::format("one sample of {} tokens needs {} for activations, but only {} were planned",
                  num_tokens, format_bytes(bytes), format_bytes(capacity)),
      "train on shorter samples (rollout.rollout_max_response_len), use more ranks, or raise "
      "rollout.mem_fraction_static",
      "rollout.mem_fraction_static"));
}

}  // namespace

Bins Trainer::pack(std::span<const Sample> samples) const {
  return pack_microbatches(lengths_of(samples), {.dynamic = options_.use_dynamic_batch_size,
                                                 .max_tokens = max_microbatch_tokens(),
                                                 .micro_batch_size = options_.micro_batch_size});
}

SlotPlan Trainer::assign_fitting(const StageDecoders& decoders, std::span<const Sample> samples,
                                 const std::function<SlotPlan(const Assignment&)>& reserve,
                                 Assignment& assignment) {
  Bins microbatches = pack(samples);
  for (;;) {
    assignment = assign(decoders, samples, microbatches);
    SlotPlan plan = reserve(assignment);
    if (!is_planned_) return plan;  // the arena has grown
    if (!split_too_large(samples, assignment, plan, microbatches)) return plan;
  }
}

// Returns whether any was too large. Ranks agree: those of a replica run the same microbatches, and
// all run equally many. A microbatch that is too large on one rank is split on all.
bool Trainer::split_too_large(std::span<const Sample> samples, const Assignment& assignment,
                              const SlotPlan& plan, Bins& microbatches) {
  const size_t count = assignment.microbatches.size();
  std::vector<double> bytes(count + 1);  // of those that are too large; whole numbers below 2^53
  for (size_t i = 0; i < assignment.numbers.size(); ++i)
    bytes[static_cast<size_t>(assignment.numbers[i])] = static_cast<double>(plan.too_large[i]);
  bytes[count] = -static_cast<double>(arena_.capacity_bytes());
  dist::all_reduce_max(host_, bytes);
  const double capacity = -bytes[count];
  bytes.resize(count);
  const size_t largest = static_cast<size_t>(std::ranges::max_element(bytes) - bytes.begin());
  if (bytes[largest] == 0) return false;
  const std::vector<int64_t> lengths = lengths_of(samples);
  Bins split;
  for (size_t m = 0; m < microbatches.size(); ++m) {
    if (bytes[m] == 0 || microbatches[m].size() < 2) {
      split.push_back(std::move(microbatches[m]));
      continue;
    }
    for (auto& half : split_microbatch(microbatches[m], lengths)) split.push_back(std::move(half));
  }
  const std::vector<int64_t>& indices = assignment.microbatches[largest];
  if (split.size() == microbatches.size())
    throw_too_long(count_tokens(samples, indices), bytes[largest], capacity);
  microbatches = std::move(split);
  if (!has_split_ && host_.rank() == 0)
    log_warn(
        "activations of a microbatch of {} tokens in {} samples need {}, but only {} were planned: "
        "microbatches that do not fit are split, which takes longer; lower "
        "train.max_tokens_per_gpu",
        count_tokens(samples, indices), indices.size(), format_bytes(bytes[largest]),
        format_bytes(capacity));
  has_split_ = true;
  return true;
}

// Without a plan the arena grows to the size of this rank's largest microbatches.
SlotPlan Trainer::reserve_for_step(std::span<const Sample> samples, const Assignment& assignment,
                                   const SlotCounts& counts) {
  most_tokens_ = count_most_tokens(samples, assignment.microbatches);
  const bool is_open = is_planned_ && !fixed_keep();  // what layers keep is chosen later
  SlotPlan plan{.counts = counts, .most = {}};
  std::vector<SlotBytes> microbatches;
  for (const auto& indices : assignment.mine) {
    const auto measure = [&](model::KeepPlan keep) {
      return measure_step(samples, indices, fixed_keep().value_or(keep), counts,
                          MeasuredRank::kOwn);
    };
    SlotBytes& bytes = microbatches.emplace_back(
        measure({.level = is_open ? model::LayerKeep::kInputs : model::LayerKeep::kAll}));
    plan.least_kept.push_back(bytes.kept);
    if (is_open && counts.slots > 1)  // as plan_activations
      bytes.scratch = std::max(bytes.scratch, measure({.level = model::LayerKeep::kAll}).scratch);
  }
  place_in(plan, microbatches, assignment.mine,
           is_planned_ ? arena_.capacity_bytes() : std::numeric_limits<int64_t>::max());
  if (!is_planned_) arena_.reserve(std::max(bytes_of_slots(plan.most, counts), measure_update()));
  return plan;
}

SlotPlan Trainer::reserve_for_scoring(const ScoringWork& work, const Assignment& assignment,
                                      size_t num_slots) {
  most_tokens_ = count_most_tokens(work.samples, assignment.microbatches);
  SlotPlan plan{.counts = {num_slots}, .most = {}};
  std::vector<SlotBytes> microbatches;
  for (const auto& indices : work.microbatches)
    microbatches.push_back(measure_scoring({work.chunks, work.head, work.samples, {&indices, 1}},
                                           groups_.pp.rank(), shape(work.chunks.size()), num_slots,
                                           device_, groups_,
                                           most_ep_rows(count_tokens(work.samples, indices))));
  place_in(plan, microbatches, work.microbatches,
           is_planned_ ? arena_.capacity_bytes() : std::numeric_limits<int64_t>::max());
  if (!is_planned_) arena_.reserve(bytes_of_slots(plan.most, plan.counts));
  return plan;
}

}  // namespace slimexx::train
