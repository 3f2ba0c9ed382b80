// What a trainer's activations take, and what layers keep in the memory that is there.
#include <fmt/format.h>

#include <algorithm>

#include "copied_gradients.h"
#include "executor.h"
#include "scoring.h"
#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/host.h"
#include "slimexx/ops/policy_loss.h"
#include "step_routers.h"

namespace slimexx::train {
namespace {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

constexpr model::KeepPlan kKeepAll{.level = model::LayerKeep::kAll};
constexpr model::KeepPlan kKeepLeast{.level = model::LayerKeep::kInputs};

// One microbatch of samples of equal length, none longer than `longest`, with every field there is.
std::vector<Sample> equal_samples(int64_t num_tokens, int64_t count, int64_t longest) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t share = num_tokens * (i + 1) / count - num_tokens * i / count;
    const int64_t length = std::clamp<int64_t>(share, 2, longest);
    const auto responses = static_cast<size_t>(length - 1);
    samples.push_back({.tokens = std::vector<int32_t>(static_cast<size_t>(length)),
                       .response_length = length - 1,
                       .loss_mask = std::vector<uint8_t>(responses, 1),
                       .advantages = std::vector<float>(responses),
                       .old_log_probs = std::vector<float>(responses),
                       .ref_log_probs = std::vector<float>(responses),
                       .rollout_log_probs = std::vector<float>(responses)});
  }
  return samples;
}

std::vector<int64_t> all_indices(std::span<const Sample> samples) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < samples.size(); ++i) indices.push_back(static_cast<int64_t>(i));
  return indices;
}

int64_t count_tokens(std::span<const Sample> samples, std::span<const int64_t> indices) {
  int64_t num_tokens = 0;
  for (const int64_t i : indices) num_tokens += std::ssize(samples[static_cast<size_t>(i)].tokens);
  return num_tokens;
}

}  // namespace

int64_t default_max_logits_bytes(tensor::Device device) {
  return device.is_cpu() ? int64_t{1} << 28 : int64_t{8} << 30;
}

void Trainer::borrow_memory(Tensor memory) {
  arena_.borrow(memory);
  is_planned_ = true;
  double least[1] = {-static_cast<double>(arena_.capacity_bytes())};
  dist::all_reduce_max(host_, least);
  planned_bytes_ = static_cast<int64_t>(-least[0]);
}

void Trainer::limit_logits(int64_t max_logits_bytes) {
  head_options_.max_logits_bytes = max_logits_bytes;
}

// The largest microbatches that packing can make: as few and as many samples as they can hold.
std::vector<std::vector<Sample>> Trainer::largest_microbatches(int64_t longest_sequence,
                                                               int64_t num_samples) const {
  const int64_t longest = std::max<int64_t>(longest_sequence, 2);
  const int64_t num_tokens = options_.use_dynamic_batch_size
                                 ? std::max(options_.max_tokens_per_gpu, longest)
                                 : options_.micro_batch_size * longest;
  const int64_t most = std::clamp<int64_t>(num_samples, 1, std::max<int64_t>(num_tokens / 2, 1));
  const int64_t fewest = std::min(most, (num_tokens + longest - 1) / longest);
  return {equal_samples(num_tokens, fewest, longest), equal_samples(num_tokens, most, longest)};
}

ActivationBytes Trainer::plan_activations(int64_t longest_sequence, int64_t num_samples) const {
  ActivationBytes bytes{.least = measure_update(), .most = measure_update()};
  for (const auto& samples : largest_microbatches(longest_sequence, num_samples)) {
    const auto indices = all_indices(samples);
    const model::KeepPlan least = fixed_keep().value_or(kKeepLeast);
    const model::KeepPlan most = fixed_keep().value_or(kKeepAll);
    bytes.least = std::max(bytes.least, measure_step(samples, indices, least));
    bytes.most = std::max(bytes.most, measure_step(samples, indices, most));
  }
  return bytes;
}

int64_t Trainer::plan_scoring(const model::Decoder& decoder, const model::ModelParameters& weights,
                              int64_t longest_sequence, int64_t num_samples) const {
  int64_t bytes = 0;
  for (const auto& samples : largest_microbatches(longest_sequence, num_samples))
    bytes = std::max(bytes, measure_scoring(decoder, weights, head_options_, device_, groups_,
                                            samples, all_indices(samples)));
  return bytes;
}

// Forward, loss and backward of one microbatch.
int64_t Trainer::measure_step(std::span<const Sample> samples, std::span<const int64_t> indices,
                              model::KeepPlan keep) const {
  Arena plan = Arena::for_planning(device_, arena_.what_for());
  ops::PolicyLossOptions largest;
  largest.kind = ops::LossKind::kSft;
  largest.entropy_coef = 1;                                 // wants every optional tensor
  std::vector<std::vector<float>> weights(samples.size());  // of this microbatch alone
  for (const int64_t i : indices)
    weights[static_cast<size_t>(i)].resize(samples[static_cast<size_t>(i)].loss_mask.size());
  const std::vector<int64_t> microbatch(indices.begin(), indices.end());
  const Tensor metrics(nullptr, DType::kF64, device_, {ops::kNumLossMetrics});
  MtpWork mtp = make_mtp_work({}, num_trained_mtp_, options_.mtp_loss_scaling_factor);
  mtp.metrics.assign(static_cast<size_t>(num_trained_mtp_), metrics);
  Slot slot{ops::planning_context(plan, groups_)};
  run_operations(list_operations(0, 1, 1),
                 {.decoder = decoder_,
                  .weights = weights_,
                  .gradients = gradients_,
                  .head = head_options_,
                  .samples = samples,
                  .microbatches = {&microbatch, 1},
                  .token_weights = weights,
                  .loss = largest,
                  .metrics = metrics,
                  .choose_keep = [&](auto) { return keep; },
                  .mtp = num_trained_mtp_ > 0 ? &mtp : nullptr,
                  .routers = routers_->balances()},
                 {&slot, 1});
  return plan.high_water_bytes();
}

int64_t Trainer::measure_update() const {
  Arena plan = Arena::for_planning(device_, arena_.what_for());
  optimizer_.plan_step(ops::planning_context(plan, groups_));
  copied_gradients_->sum(ops::planning_context(plan, groups_));
  return plan.high_water_bytes();
}

std::optional<model::KeepPlan> Trainer::fixed_keep() const {
  if (options_.recompute_granularity == "none") return kKeepAll;
  if (options_.recompute_granularity == "full") return kKeepLeast;
  return std::nullopt;
}

void Trainer::check_fits(int64_t bytes, int64_t num_tokens, size_t num_samples) const {
  if (bytes <= planned_bytes_) return;
  throw Error(
      ErrorCode::kEnvironment,
      fmt::format("the activations of a microbatch of {} tokens in {} samples take {}, and {} were "
                  "planned",
                  num_tokens, num_samples, format_bytes(static_cast<double>(bytes)),
                  format_bytes(static_cast<double>(planned_bytes_))),
      "lower train.max_tokens_per_gpu or the longest response, or raise "
      "rollout.mem_fraction_static",
      "train.max_tokens_per_gpu");
}

// What the layers of a microbatch keep. In planned memory: what fits.
model::KeepPlan Trainer::choose_keep(std::span<const Sample> samples,
                                     std::span<const int64_t> indices) const {
  if (!is_planned_) return fixed_keep().value_or(kKeepAll);
  const model::KeepPlan least = fixed_keep().value_or(kKeepLeast);
  const int64_t needed = measure_step(samples, indices, least);
  const int64_t num_tokens = count_tokens(samples, indices);
  check_fits(needed, num_tokens, indices.size());
  if (fixed_keep()) return least;
  // All tp ranks keep alike, as backward calls collectives where it computes again: each counts as
  // many rows as the first, which has the most.
  const int64_t ranks = groups_.tp.size(), own_rows = (num_tokens + ranks - 1) / ranks;
  return model::choose_keep(decoder_.local_spec(), decoder_.stage(), device_,
                            {own_rows, num_tokens}, planned_bytes_ - needed);
}

// Without a plan the arena grows to what this rank's largest microbatch takes.
void Trainer::reserve_for_step(std::span<const Sample> samples, const Assignment& assignment) {
  if (is_planned_) return;
  int64_t bytes = measure_update();
  for (const auto& indices : assignment.mine) {
    bytes = std::max(bytes, measure_step(samples, indices, choose_keep(samples, indices)));
  }
  arena_.reserve(bytes);
}

void Trainer::reserve_for_scoring(const Pass& pass, std::span<const Sample> samples,
                                  const Assignment& assignment) {
  int64_t bytes = 0;
  for (const auto& indices : assignment.mine) {
    const int64_t needed = measure_scoring(pass.decoder, pass.weights, head_options_, device_,
                                           groups_, samples, indices);
    if (is_planned_) check_fits(needed, count_tokens(samples, indices), indices.size());
    bytes = std::max(bytes, needed);
  }
  if (!is_planned_) arena_.reserve(bytes);
}

}  // namespace slimexx::train
