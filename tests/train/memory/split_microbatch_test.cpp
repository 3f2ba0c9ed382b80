// Tests that microbatches that do not fit in planned memory are split, with the same training
// result.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/random_model.h"
#include "slimexx/base/error.h"
#include "train/grids/grid_agreement.h"
#include "train/grids/grid_run.h"

namespace slimexx::train {
namespace {

constexpr int64_t kLength = 40;

// Enough tokens for all samples in one microbatch.
GridRun whole_run(const std::string& family, int world_size, dist::GridSizes sizes) {
  GridRun run{.random_of = model::random_spec(family,
                                              {.vocab_size = 320,
                                               .hidden_size = 128,
                                               .intermediate_size = 208,
                                               .head_dim = 64,
                                               .max_positions = 512,
                                               .num_layers = 4},
                                              0.1),
              .world_size = world_size,
              .sizes = sizes,
              .options = packed(16 * kLength),
              .num_steps = 2};
  run.options.balance_data = false;
  run.optimizer.adam_eps = 1e-5;  // keeps Adam from full steps on gradients that are pure rounding
  return run;
}

std::vector<Sample> equal_samples(int n) {
  return samples_of_lengths(std::vector<int64_t>(static_cast<size_t>(n), kLength), 9);
}

// Memory for microbatches of at most `num_samples` samples.
int64_t bytes_for(GridRun run, int64_t num_samples) {
  run.options.max_tokens_per_gpu = num_samples * kLength / run.sizes.cp;
  int64_t bytes = 0;
  run.planned_share = 0;
  run.num_steps = 0;
  run.after_plan = [&](int64_t planned) { bytes = std::max(bytes, planned); };
  run_on_grid(run, equal_samples(static_cast<int>(num_samples)));
  return bytes;
}

struct Grid {
  const char* family;
  int world_size;
  dist::GridSizes sizes;
};

TEST(SplitMicrobatch, TrainsAsUnsplit) {
  const std::vector<Sample> samples = equal_samples(16);
  for (const Grid& grid :
       {Grid{"qwen3", 1, {}}, Grid{"qwen3", 2, {}}, Grid{"glm4", 2, {.tp = 2}},
        Grid{"qwen3", 2, {.cp = 2}}, Grid{"qwen3", 2, {.pp = 2}},
        Grid{"qwen3_moe", 4, {.pp = 2, .ep = 2}}, Grid{"glm_moe_dsa", 2, {.ep = 2}}}) {
    SCOPED_TRACE(std::string(grid.family) + " on " + std::to_string(grid.world_size));
    GridRun run = whole_run(grid.family, grid.world_size, grid.sizes);
    const GridResult whole = run_on_grid(run, samples);
    run.planned_bytes = bytes_for(run, 4);
    const GridResult split = run_on_grid(run, samples);
    EXPECT_GT(split.steps[0].num_microbatches, whole.steps[0].num_microbatches);
    EXPECT_EQ(split.steps[0].num_tokens, whole.steps[0].num_tokens);
    expect_same_training(split, whole);
  }
}

// Splitting a microbatch of equal samples gives the bits of a run that packs the smaller
// microbatches itself.
TEST(SplitMicrobatch, IsThePackingOfLessTokens) {
  const std::vector<Sample> samples = equal_samples(16);
  GridRun run = whole_run("qwen3", 1, {});
  GridRun packed_so = run;
  packed_so.options.max_tokens_per_gpu = 4 * kLength;
  const GridResult less = run_on_grid(packed_so, samples);
  run.planned_bytes = bytes_for(run, 4);
  const GridResult split = run_on_grid(run, samples);
  EXPECT_EQ(split.steps[0].num_microbatches, 4);
  EXPECT_EQ(split.weights, less.weights);
  EXPECT_EQ(split.gradients, less.gradients);
}

TEST(SplitMicrobatch, OneSampleThatDoesNotFitEndsAllRanks) {
  std::vector<Sample> samples = equal_samples(6);
  for (const Grid& grid : {Grid{"qwen3", 2, {}}, Grid{"qwen3_moe", 2, {.ep = 2}}}) {
    GridRun run = whole_run(grid.family, grid.world_size, grid.sizes);
    run.planned_bytes = bytes_for(run, 1) / 2;
    try {
      run_on_grid(run, samples);
      FAIL() << "half of what a sample takes was enough";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
      EXPECT_NE(std::string(error.what()).find("one sample of 40 tokens"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace slimexx::train
