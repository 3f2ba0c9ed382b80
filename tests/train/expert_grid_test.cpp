// Experts on several ranks: training agrees with training on one rank.
#include <gtest/gtest.h>

#include <numeric>

#include "grid_run.h"
#include "slimexx/base/error.h"

namespace slimexx::train {
namespace {

GridRun expert_run(const std::string& family, int world_size, int ep, const TrainOptions& options) {
  return {.folder = test_data_path("golden/oracle/") + family,
          .world_size = world_size,
          .sizes = {.ep = ep},
          .options = options,
          .num_steps = 2};
}

void expect_same_loads(const GridResult& actual, const GridResult& expected) {
  ASSERT_EQ(actual.steps.size(), expected.steps.size());
  const auto &a = actual.steps[0].routers, &e = expected.steps[0].routers;
  ASSERT_EQ(a.size(), e.size());
  ASSERT_FALSE(e.empty());
  for (size_t i = 0; i < e.size(); ++i) {
    EXPECT_EQ(a[i].layer, e[i].layer);
    EXPECT_EQ(a[i].tokens, e[i].tokens) << "layer " << e[i].layer;
    EXPECT_EQ(a[i].entropy, e[i].entropy) << "layer " << e[i].layer;
    EXPECT_EQ(a[i].aux_loss, e[i].aux_loss) << "layer " << e[i].layer;
    EXPECT_EQ(a[i].z_loss, e[i].z_loss) << "layer " << e[i].layer;
  }
}

class ExpertGrid : public testing::TestWithParam<std::string> {};

// Eight ranks have fewer microbatches between them: some are empty, and exchange no rows.
TEST_P(ExpertGrid, TrainsAsOneRank) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string recompute : {"none", "full"}) {
    TrainOptions options = packed(48);
    options.recompute_granularity = recompute;
    options.moe_aux_loss_coeff = 0.5;
    options.moe_z_loss_coeff = 0.25;
    const GridResult one = run_on_grid(expert_run(GetParam(), 1, 1, options), samples);
    struct Grid {
      int world_size, ep;
    };
    for (const Grid grid : {Grid{2, 2}, Grid{4, 4}, Grid{8, 8}, Grid{4, 2}}) {
      SCOPED_TRACE("recompute " + recompute + ", ep " + std::to_string(grid.ep) + " of " +
                   std::to_string(grid.world_size) + " ranks");
      const GridResult split =
          run_on_grid(expert_run(GetParam(), grid.world_size, grid.ep, options), samples);
      expect_same_training(split, one);
      expect_same_loads(split, one);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertGrid,
                         testing::Values("qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3",
                                         "glm_moe_dsa"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace slimexx::train
