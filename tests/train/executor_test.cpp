// Tests the executor, which runs a step as a list of operations over slots.
#include "train/passes/executor.h"

#include "train/listed_step.h"

namespace slimexx::train {
namespace {

using enum OperationKind;

ListedStep run(const std::string& model, const std::vector<Operation>& operations, size_t num_slots,
               const Bins& microbatches, model::LayerKeep level) {
  TinyPolicy policy(model);
  return run_listed_step(policy, {}, mixed_samples(4, 70), operations, num_slots, microbatches,
                         level);
}

// The order of forwards does not change the result: each microbatch has its own memory, and
// backwards accumulate in list order.
TEST(Executor, TwoSlotsGiveTheGradientsOfOne) {
  const Bins microbatches = {{0, 3}, {1}};
  const std::vector<Operation> in_turn = list_operations(0, {}, 2);
  const std::vector<Operation> both = {
      {kForward, 0, 0}, {kForward, 1, 1}, {kBackward, 0, 0}, {kBackward, 1, 1}};
  for (const char* model : {"qwen3_tied_mqa", "qwen2_untied", "glm4_no_bias"}) {
    for (const model::LayerKeep level : {model::LayerKeep::kAll, model::LayerKeep::kInputs}) {
      const ListedStep expected = run(model, in_turn, 1, microbatches, level);
      const ListedStep actual = run(model, both, 2, microbatches, level);
      EXPECT_EQ(first_difference(actual.gradients, expected.gradients), "") << model;
      EXPECT_EQ(first_difference(actual.metrics, expected.metrics), "") << model;
      EXPECT_EQ(actual.stages, (std::vector<int64_t>{0, 1, 2, 3}));
      // Backward in reverse order sums in another order.
      const ListedStep newest_first =
          run(model, {{kForward, 0, 0}, {kForward, 1, 1}, {kBackward, 1, 1}, {kBackward, 0, 0}}, 2,
              microbatches, level);
      EXPECT_LT(relative_distance(newest_first.gradients, expected.gradients), 1e-5);
    }
  }
}

// Deferred weight-gradient products give the same bits as those that run in backward.
TEST(Executor, DeferredProductsGiveTheSameBits) {
  const Bins microbatches = {{0, 3}, {1}, {2}};
  const std::vector<Operation> in_turn = list_operations(0, {}, 3);
  const std::vector<Operation> apart = {{kForward, 0, 0},
                                        {kBackward, 0, 0, 0, -1, 0},
                                        {kForward, 1, 0},
                                        {kForward, 2, 1},
                                        {kBackward, 1, 0, 0, -1, 1},
                                        {kWeightGradients, 0, 0, 0, -1, 0},
                                        {kBackward, 2, 1, 0, -1, 0},
                                        {kWeightGradients, 1, 0, 0, -1, 1},
                                        {kWeightGradients, 2, 0, 0, -1, 0}};
  for (const char* model : {"qwen3_tied_mqa", "qwen2_untied", "glm4_no_bias",
                            "../oracle/glm4_moe_lite", "../oracle/deepseek_v3"}) {
    for (const model::LayerKeep level : {model::LayerKeep::kAll, model::LayerKeep::kInputs}) {
      const ListedStep expected = run(model, in_turn, 1, microbatches, level);
      const ListedStep actual = run(model, apart, 2, microbatches, level);
      EXPECT_EQ(first_difference(actual.gradients, expected.gradients), "") << model;
      EXPECT_EQ(first_difference(actual.metrics, expected.metrics), "") << model;
      EXPECT_TRUE(actual.stages.empty()) << "gradients that are not final were told of";
    }
  }
}

// Empty microbatches add nothing at any position. An empty microbatch that comes first writes the
// zeros to which later ones add.
TEST(Executor, EmptyMicrobatchesChangeNoBit) {
  for (const char* model :
       {"qwen3_tied_mqa", "qwen2_untied", "glm4_no_bias", "../oracle/qwen3_moe",
        "../oracle/glm4_moe_lite", "../oracle/deepseek_v3", "../oracle/glm_moe_dsa"}) {
    for (const model::LayerKeep level : {model::LayerKeep::kAll, model::LayerKeep::kInputs}) {
      const ListedStep expected = run(model, list_operations(0, {}, 2), 1, {{0, 3}, {1}}, level);
      for (const Bins& microbatches : {Bins{{}, {0, 3}, {1}}, Bins{{0, 3}, {}, {1}}}) {
        const ListedStep actual = run(model, list_operations(0, {}, 3), 1, microbatches, level);
        EXPECT_EQ(first_difference(actual.gradients, expected.gradients), "") << model;
        EXPECT_EQ(first_difference(actual.metrics, expected.metrics), "") << model;
      }
    }
  }
}

}  // namespace
}  // namespace slimexx::train
