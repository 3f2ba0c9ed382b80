// Runs the operations of one step from a given list, so that executor tests can compare steps. Each
// call allocates new slots.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>
#include <span>

#include <vector>

#include "slimexx/train/packing.h"
#include "train/passes/executor.h"
#include "train/tiny_policy.h"

namespace slimexx::train {

struct ListedStep {
  std::vector<float> gradients, metrics;
  std::vector<int64_t> stages;  // reported by the last backward
};

// `policy` has a `spec`, a `decoder` and a `store`, whose gradients must be zero.
template <class Policy>
ListedStep run_listed_step(Policy& policy, tensor::Device device, std::span<const Sample> samples,
                           std::span<const Operation> operations, size_t num_slots,
                           const Bins& microbatches, model::LayerKeep level) {
  constexpr int64_t kArenaBytes = int64_t{64} << 20;
  const std::vector<StageChunk> chunks = bind_chunks(policy.decoder, policy.store, true);
  const model::HeadOptions head{.temperature = 0.9f, .max_logits_bytes = int64_t{1} << 28};
  std::vector<tensor::Arena> arenas;
  std::vector<Slot> slots;
  tensor::Arena scratch(device, kArenaBytes, "scratch");
  for (size_t s = 0; s < num_slots; ++s) arenas.emplace_back(device, kArenaBytes, "slot");
  for (tensor::Arena& arena : arenas) {
    if (num_slots > 1) arena.share_scratch(scratch);
    slots.push_back({ops::compute_context(arena)});
  }
  std::vector<tensor::Arena> deferred_arenas;
  for (size_t d = 0; d < count_deferred(operations); ++d)
    deferred_arenas.emplace_back(device, kArenaBytes, "operands of weights' gradients");
  std::vector<ops::DeferredProducts> deferred(deferred_arenas.begin(), deferred_arenas.end());
  const tensor::Buffer memory(device, ops::kNumLossMetrics * 8, "metrics");
  const tensor::Tensor metrics = memory.view(tensor::DType::kF64, {ops::kNumLossMetrics});
  const auto token_weights_of_step = token_weights(samples, StepLoss{});
  const StepLoss loss = full_loss();
  ListedStep result;
  run_operations(
      operations,
      {.chunks = chunks,
       .head = head,
       .samples = samples,
       .microbatches = microbatches,
       .token_weights = token_weights_of_step,
       .loss = loss.policy,
       .metrics = metrics,
       .choose_keep = [&](auto...) { return model::KeepPlan{.level = level}; },
       .last_backward = {.stage_done = [&](int64_t stage) { result.stages.push_back(stage); }},
       .deferred = deferred},
      slots);
  for (const Slot& slot : slots) {
    EXPECT_FALSE(slot.in_flight.has_value());
    EXPECT_EQ(slot.ctx.arena.used_bytes(), 0);
  }
  EXPECT_EQ(scratch.used_bytes(), 0);
  for (const tensor::Arena& arena : deferred_arenas) {
    EXPECT_EQ(arena.used_bytes(), 0);
    EXPECT_GT(arena.high_water_bytes(), 0);
  }
  EXPECT_EQ(scratch.high_water_bytes() > 0, num_slots > 1);
  for (const auto& info : policy.store.infos()) {
    std::vector<float> own(static_cast<size_t>(info.num_elements()));
    policy.store.read_gradients(info, 0, own.data(), info.num_elements());
    result.gradients.insert(result.gradients.end(), own.begin(), own.end());
  }
  double sums[ops::kNumLossMetrics];
  tensor::download(tensor::compute_stream(device), sums, metrics);
  result.metrics.assign(sums, sums + ops::kNumLossMetrics);
  return result;
}

}  // namespace slimexx::train
