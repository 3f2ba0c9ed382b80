// Training on grids agrees with training on one rank.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace slimexx::train
