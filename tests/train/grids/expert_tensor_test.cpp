// Training with tensor-parallel experts agrees with training on one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "model/random_model.h"
#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

struct TensorGrid {
  int world_size;
  dist::GridSizes sizes;
  std::string schedule = "1f1b";
  std::string text() const {
    return fmt::format("tp {} cp {} pp {} ep {} etp {} of {}, {}", sizes.tp, sizes.cp, sizes.pp,
                       sizes.ep, sizes.etp, world_size, schedule);
  }
};

GridRun tensor_run(const std::string& family, const TensorGrid& grid,
                   const std::string& recompute) {
  GridRun run{.folder = test_data_path("golden/oracle/") + family,
              .world_size = grid.world_size,
              .sizes = grid.sizes,
              .leaves = grid.sizes.tp,
              .options = packed(48),
              .num_steps = 2};
  run.optimizer.adam_eps = 1e-5;  // keeps Adam from full steps on gradients that are pure rounding
  run.options.max_tokens_per_gpu /= grid.sizes.cp;
  run.options.recompute_granularity = recompute;
  run.options.pipeline_schedule = grid.schedule;
  run.options.moe_aux_loss_coeff = 0.5;
  run.options.moe_z_loss_coeff = 0.25;
  return run;
}

// An ETP group is all tp ranks, some of them, or ranks of several sequences or context chunks.
// Includes pipeline stages that defer weight gradients.
const TensorGrid kTensorGrids[] = {{2, {.tp = 2, .etp = 2}},
                                   {4, {.ep = 2, .etp = 2}},
                                   {4, {.cp = 2, .etp = 4}},
                                   {6, {.cp = 3, .ep = 1, .etp = 2}},
                                   {8, {.tp = 4, .ep = 2, .etp = 2}},
                                   {8, {.tp = 2, .cp = 2, .ep = 2, .etp = 4}},
                                   {8, {.tp = 2, .pp = 2, .ep = 2, .etp = 2}},
                                   {4, {.pp = 2, .etp = 2}, "zb_h1"}};

class ExpertTensorGrid : public testing::TestWithParam<std::string> {};

// Has fewer microbatches than replicas, so some ranks have no tokens.
TEST_P(ExpertTensorGrid, TrainsAsOneRank) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  std::map<int, GridResult> of_one_rank;  // key: number of leaves
  for (const TensorGrid& grid : kTensorGrids) {
    SCOPED_TRACE(grid.text());
    GridResult& one = of_one_rank[grid.sizes.tp];
    if (one.steps.empty()) {
      GridRun alone = tensor_run(GetParam(), grid, "none");
      alone.options = tensor_run(GetParam(), {1, {}}, "none").options;
      alone.world_size = 1;
      alone.sizes = {};
      one = run_on_grid(alone, samples);
    }
    const GridResult many = run_on_grid(tensor_run(GetParam(), grid, "full"), samples);
    expect_same_training(many, one, {.gradient = 2e-6});  // needed for query norms; 1e-6 elsewhere
    double largest = 0;
    for (const auto& [name, gradient] : one.gradients)
      largest = std::max(largest, relative_difference(many.gradients.at(name), gradient));
    std::printf("%-48s gradients within %.1e\n", grid.text().c_str(), largest);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertTensorGrid,
                         testing::Values("qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3",
                                         "glm_moe_dsa"),
                         [](const auto& instance) { return instance.param; });

// Experts so wide that they dominate the memory.
GridRun wide_run(const TensorGrid& grid, const std::string& recompute) {
  GridRun run = tensor_run("qwen3_moe", grid, recompute);
  run.random_of = model::random_spec("qwen3_moe",
                                     {.vocab_size = 320,
                                      .hidden_size = 64,
                                      .intermediate_size = 512,
                                      .head_dim = 16,
                                      .max_positions = 512},
                                     0.08);
  run.num_steps = 1;
  return run;
}

// The plan has room for the rows that ranks with few or no rows receive from others.
TEST(ExpertTensorGrids, FitThePlannedMemory) {
  const std::vector<Sample> samples = mixed_samples(9, 12, 320);
  for (const TensorGrid& grid : kTensorGrids) {
    SCOPED_TRACE(grid.text());
    GridRun run = wide_run(grid, "auto");
    const GridResult grown = run_on_grid(run, samples);
    run.planned_share = 0;
    EXPECT_EQ(run_on_grid(run, samples).weights, grown.weights);
  }
}

// One replica has half the tokens of the other and plans memory for its own tokens; this memory
// still has room for the rows of both.
TEST(ExpertTensorGrids, RanksHaveRoomForTheirNeighboursRows) {
  const std::vector<Sample> samples = samples_of_lengths({46, 24}, 7);
  const GridRun run = wide_run({2, {.etp = 2}}, "none");
  GridRun alone = run;
  alone.world_size = 1;
  alone.sizes = {};
  expect_same_training(run_on_grid(run, samples), run_on_grid(alone, samples));
}

}  // namespace
}  // namespace slimexx::train
