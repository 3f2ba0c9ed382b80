// Steps as lists of operations over slots.
#include "train/executor.h"

#include <numeric>

#include "slimexx/ops/elementwise.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

using enum OperationKind;

constexpr int64_t kArenaBytes = int64_t{64} << 20;

struct Outcome {
  std::vector<float> gradients, metrics;
  std::vector<int64_t> backwards_with_hooks;  // stages that the last backward told of
};

// Three samples as three microbatches, or one of them empty, over `num_slots` slots.
Outcome run(const std::string& model, const std::vector<Operation>& operations, size_t num_slots,
            const Bins& microbatches, model::LayerKeep level) {
  TinyPolicy policy(model);
  const std::vector<Sample> samples = mixed_samples(4, 70);
  const auto weights = model::bind_weights(policy.store, policy.spec);
  const auto gradients = model::bind_gradients(policy.store, policy.spec);
  const model::HeadOptions head{.temperature = 0.9f, .max_logits_bytes = int64_t{1} << 28};
  std::vector<tensor::Arena> arenas;
  std::vector<Slot> slots;
  for (size_t s = 0; s < num_slots; ++s) arenas.emplace_back(tensor::Device{}, kArenaBytes, "slot");
  for (tensor::Arena& arena : arenas) slots.push_back({ops::compute_context(arena)});
  tensor::Buffer metrics({}, ops::kNumLossMetrics * 8, "metrics");
  const auto tokens = token_weights(samples, false);
  const StepLoss loss = full_loss();
  Outcome outcome;
  run_operations(operations,
                 {.decoder = policy.decoder,
                  .weights = weights,
                  .gradients = gradients,
                  .head = head,
                  .samples = samples,
                  .microbatches = microbatches,
                  .token_weights = tokens,
                  .loss = loss.policy,
                  .metrics = metrics.view(tensor::DType::kF64, {ops::kNumLossMetrics}),
                  .choose_keep = [&](auto) { return model::KeepPlan{.level = level}; },
                  .last_backward = {.stage_done =
                                        [&](int64_t stage) {
                                          outcome.backwards_with_hooks.push_back(stage);
                                        }}},
                 slots);
  for (const Slot& slot : slots) {
    EXPECT_FALSE(slot.in_flight.has_value());
    EXPECT_EQ(slot.ctx.arena.used_bytes(), 0);
  }
  outcome.gradients = floats_of(policy.store.flat_gradients());
  const auto* sums = static_cast<const double*>(metrics.data());
  outcome.metrics.assign(sums, sums + ops::kNumLossMetrics);
  return outcome;
}

// The order of forwards changes no bit: each microbatch has its own memory, and backwards add up in
// the order of the list.
TEST(Executor, TwoSlotsGiveTheGradientsOfOne) {
  const Bins microbatches = {{0, 3}, {1}};
  const std::vector<Operation> in_turn = list_operations(0, 1, 2);
  const std::vector<Operation> both = {
      {kForward, 0, 0}, {kForward, 1, 1}, {kBackward, 0, 0}, {kBackward, 1, 1}};
  for (const char* model : {"qwen3_tied_mqa", "qwen2_untied", "glm4_no_bias"}) {
    for (const model::LayerKeep level : {model::LayerKeep::kAll, model::LayerKeep::kInputs}) {
      const Outcome expected = run(model, in_turn, 1, microbatches, level);
      const Outcome actual = run(model, both, 2, microbatches, level);
      EXPECT_EQ(first_difference(actual.gradients, expected.gradients), "") << model;
      EXPECT_EQ(first_difference(actual.metrics, expected.metrics), "") << model;
      EXPECT_EQ(actual.backwards_with_hooks, (std::vector<int64_t>{0, 1, 2, 3}));
      // The newest first is another sum.
      const Outcome newest_first =
          run(model, {{kForward, 0, 0}, {kForward, 1, 1}, {kBackward, 1, 1}, {kBackward, 0, 0}}, 2,
              microbatches, level);
      EXPECT_LT(relative_distance(newest_first.gradients, expected.gradients), 1e-5);
    }
  }
}

// Empty microbatches add nothing, wherever they stand; before the others they write the zeros that
// those add to.
TEST(Executor, EmptyMicrobatchesChangeNoBit) {
  for (const char* model : {"qwen3_tied_mqa", "qwen2_untied", "glm4_no_bias"}) {
    for (const model::LayerKeep level : {model::LayerKeep::kAll, model::LayerKeep::kInputs}) {
      const Outcome expected = run(model, list_operations(0, 1, 2), 1, {{0, 3}, {1}}, level);
      for (const Bins& microbatches : {Bins{{}, {0, 3}, {1}}, Bins{{0, 3}, {}, {1}}}) {
        const Outcome actual = run(model, list_operations(0, 1, 3), 1, microbatches, level);
        EXPECT_EQ(first_difference(actual.gradients, expected.gradients), "") << model;
        EXPECT_EQ(first_difference(actual.metrics, expected.metrics), "") << model;
      }
    }
  }
}

}  // namespace
}  // namespace slimexx::train
