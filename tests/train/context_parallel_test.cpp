// Training with sequences cut over ranks agrees with training on one rank: log-probs and entropies
// to the bit.
#include <gtest/gtest.h>

#include "grid_run.h"

namespace slimexx::train {
namespace {

const char* const kFamilies[] = {"qwen2",         "qwen3",    "qwen3_moe",   "glm4",
                                 "glm4_moe_lite", "glm4_moe", "deepseek_v3", "glm_moe_dsa"};

// One rank packs as many tokens as `cp` ranks together.
GridRun context_run(const std::string& family, int world_size, int cp, int64_t tokens = 48) {
  return {.folder = test_data_path("golden/oracle/") + family,
          .world_size = world_size,
          .sizes = {.cp = cp},
          .options = packed(tokens / cp),
          .num_steps = 2};
}

TEST(ContextParallel, RanksTrainEveryFamilyAsOne) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : kFamilies) {
    SCOPED_TRACE(family);
    const GridResult one = run_on_grid(context_run(family, 1, 1), samples);
    for (const int cp : {2, 3, 4}) {
      SCOPED_TRACE(cp);
      expect_same_training(run_on_grid(context_run(family, cp, cp), samples), one);
    }
  }
}

}  // namespace
}  // namespace slimexx::train
