// Training on grids agrees with training on one rank.
#include <gtest/gtest.h>

#include <array>

#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

std::string oracle_model(const std::string& family) {
  return test_data_path("golden/oracle/") + family;
}

GridRun small_run(const std::string& family, int world_size, const dist::GridSizes& sizes) {
  return {.folder = oracle_model(family),
          .world_size = world_size,
          .sizes = sizes,
          .options = packed(48),
          .num_steps = 2};
}

TEST(Grid, DataParallelRanksTrainAsOne) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : {"qwen3", "glm4_moe"}) {
    SCOPED_TRACE(family);
    const GridResult one = run_on_grid(small_run(family, 1, {}), samples);
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(ranks);
      expect_same_training(run_on_grid(small_run(family, ranks, {}), samples), one);
    }
  }
}

// Families that differ in heads, biases, experts, latent attention, key selection and MTP layers.
class TensorParallel : public testing::TestWithParam<const char*> {
 protected:
  // Compares `tp` ranks per replica with one rank with the same number of leaves.
  void expect_agreement(const TrainOptions& options, std::span<const int> sizes, int replicas = 1) {
    const std::vector<Sample> samples = mixed_samples(7, 11, 320);
    for (const int tp : sizes) {
      SCOPED_TRACE(testing::Message() << "tp " << tp);
      GridRun one = small_run(GetParam(), 1, {});
      one.leaves = tp;
      one.options = options;
      // The gradient of an unrotated key bias is pure rounding; a larger epsilon keeps Adam from a
      // full step.
      one.optimizer.adam_eps = 1e-5;
      GridRun many = one;
      many.world_size = tp * replicas;
      many.sizes.tp = tp;
      many.leaves = 0;
      expect_same_training(run_on_grid(many, samples), run_on_grid(one, samples));
    }
  }
};

TEST_P(TensorParallel, RanksTrainAsOneWithLeaves) {
  expect_agreement(packed(48), std::array{2, 4, 8});
}

TEST_P(TensorParallel, ReplicasTrainAsOne) { expect_agreement(packed(48), std::array{2}, 2); }

// Backward recomputes layers, and the head recomputes logits in chunks.
TEST_P(TensorParallel, RecomputedLayersTrainAsOne) {
  TrainOptions options = packed(48);
  options.recompute_granularity = "full";
  options.max_logits_gib = 7 * 320 * 4 * 0x1p-30;
  expect_agreement(options, std::array{4});
}

// Microbatches start at two tokens for eight ranks: some ranks have no rows.
TEST_P(TensorParallel, RanksWithoutRowsTrainAsOne) { expect_agreement(packed(1), std::array{8}); }

// Covers the expert balancing losses and MTP layers.
TEST_P(TensorParallel, OtherLossesTrainAsOne) {
  TrainOptions options = packed(48);
  options.moe_aux_loss_coeff = 0.1;
  options.moe_z_loss_coeff = 0.1;
  options.moe_router_bias_update_rate = 1e-3;
  const std::string family = GetParam();
  options.enable_mtp_training =
      family.starts_with("glm4_moe") || family == "deepseek_v3" || family == "glm_moe_dsa";
  options.mtp_num_layers = options.enable_mtp_training ? 1 : 0;
  expect_agreement(options, std::array{4});
}

// The number of leaves changes only the order of sums.
TEST_P(TensorParallel, LeavesChangeRoundingAlone) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  GridRun run = small_run(GetParam(), 1, {});
  run.num_steps = 0;
  const GridResult plain = run_on_grid(run, samples);
  run.leaves = 4;
  const GridResult leaves = run_on_grid(run, samples);
  bool differs = false;
  for (size_t i = 0; i < plain.scores.size(); ++i) {
    for (size_t t = 0; t < plain.scores[i].log_probs.size(); ++t) {
      EXPECT_NEAR(leaves.scores[i].log_probs[t], plain.scores[i].log_probs[t], 1e-5);
      EXPECT_NEAR(leaves.scores[i].entropies[t], plain.scores[i].entropies[t], 1e-5);
    }
    differs = differs || leaves.scores[i].log_probs != plain.scores[i].log_probs;
  }
  EXPECT_TRUE(differs);  // otherwise nothing was tested
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallel,
                         testing::Values("qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe",
                                         "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace slimexx::train
