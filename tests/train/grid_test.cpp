// Training on grids agrees with training on one rank.
#include <gtest/gtest.h>

#include <array>

#include "grid_run.h"

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

// Families with what differs: heads, bias, experts, latent attention, selections, MTP layers.
class TensorParallel : public testing::TestWithParam<const char*> {
 protected:
  // `tp` ranks a replica against one rank with as many leaves.
  void expect_agreement(const TrainOptions& options, std::span<const int> sizes, int replicas = 1) {
    const std::vector<Sample> samples = mixed_samples(7, 11, 320);
    for (const int tp : sizes) {
      SCOPED_TRACE(testing::Message() << "tp " << tp);
      GridRun one = small_run(GetParam(), 1, {});
      one.leaves = tp;
      one.options = options;
      // Where a key's bias is not rotated its gradient is all rounding, of which Adam would make a
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

INSTANTIATE_TEST_SUITE_P(Families, TensorParallel,
                         testing::Values("qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe",
                                         "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace slimexx::train
