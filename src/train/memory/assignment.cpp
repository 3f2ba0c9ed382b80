#include "train/memory/assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"

namespace slimexx::train {
namespace {

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

Assignment Assigner::assign(const StageDecoders& decoders, std::span<const Sample> samples,
                            Bins microbatches) const {
  const std::vector<int64_t> lengths = lengths_of(samples);
  Assignment a;
  a.microbatches = std::move(microbatches);
  // MTP layers do not count: training them must not move a microbatch to another rank, as sums over
  // ranks would then differ in their last bits from those of a run without MTP training.
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
    a.room_tokens += std::max(tokens, stages_.max_microbatch_tokens());
  }
  Bins by_rank = assign_microbatches(costs, stages_.groups.dp.size(), stages_.options.balance_data);
  a.num_packed = std::ssize(a.microbatches);
  even_out(a.microbatches, by_rank,
           round_up_microbatches(stages_.shape(decoders.chunks.size()), 1));
  a.numbers = by_rank[static_cast<size_t>(stages_.groups.dp.rank())];
  for (const int64_t m : a.numbers) a.mine.push_back(a.microbatches[static_cast<size_t>(m)]);
  a.owner.resize(a.microbatches.size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (int64_t m : by_rank[rank]) a.owner[static_cast<size_t>(m)] = static_cast<int>(rank);
  }
  return a;
}

SlotPlan Assigner::assign_fitting(const StageDecoders& decoders, std::span<const Sample> samples,
                                  const std::function<SlotPlan(const Assignment&)>& reserve,
                                  Assignment& assignment) {
  Bins microbatches = pack_microbatches(lengths_of(samples),
                                        {.dynamic = stages_.options.use_dynamic_batch_size,
                                         .max_tokens = stages_.max_microbatch_tokens(),
                                         .micro_batch_size = stages_.options.micro_batch_size});
  for (;;) {
    assignment = assign(decoders, samples, microbatches);
    SlotPlan plan = reserve(assignment);
    if (!memory_.is_planned()) return plan;  // the arena has grown
    if (!split_too_large(samples, assignment, plan, microbatches)) return plan;
  }
}

// Returns whether any microbatch was too large. All ranks agree: the ranks of a replica run the
// same microbatches, and all replicas run equally many. A microbatch that is too large on one rank
// is split on all.
bool Assigner::split_too_large(std::span<const Sample> samples, const Assignment& assignment,
                               const SlotPlan& plan, Bins& microbatches) {
  const size_t count = assignment.microbatches.size();
  std::vector<double> bytes(count + 1);  // of too large microbatches; whole numbers below 2^53
  for (size_t i = 0; i < assignment.numbers.size(); ++i)
    bytes[static_cast<size_t>(assignment.numbers[i])] = static_cast<double>(plan.too_large[i]);
  bytes[count] = -static_cast<double>(memory_.capacity_bytes());
  dist::all_reduce_max(stages_.host, bytes);
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
  if (!has_split_ && stages_.host.rank() == 0)
    log_warn(
        "activations of a microbatch of {} tokens in {} samples need {}, but only {} were planned: "
        "microbatches that do not fit are split, which takes longer; lower "
        "train.max_tokens_per_gpu",
        count_tokens(samples, indices), indices.size(), format_bytes(bytes[largest]),
        format_bytes(capacity));
  has_split_ = true;
  return true;
}

}  // namespace slimexx::train
