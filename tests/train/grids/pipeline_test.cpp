// Training and scoring over pipeline stages agree with one rank that has the whole model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

const std::vector<std::string> kFamilies = {"deepseek_v3", "glm4",          "glm4_moe",
                                            "qwen2",       "glm4_moe_lite", "glm_moe_dsa",
                                            "qwen3",       "qwen3_moe"};

std::string oracle_model(const std::string& family) {
  return test_data_path("golden/oracle/") + family;
}

// `max_tokens` determines the number of microbatches.
GridRun pipeline_run(const std::string& folder, int world_size, int stages,
                     int64_t max_tokens = 48) {
  return {.folder = folder,
          .world_size = world_size,
          .sizes = {.pp = stages},
          .options = packed(max_tokens),
          .num_steps = 2};
}

// The largest number of stages for four layers. A layer must stay with the layer whose selection it
// shares.
int most_stages(const std::string& family) { return family == "glm_moe_dsa" ? 2 : 4; }

std::vector<float> table_before(const std::string& folder) {
  GridRun run = pipeline_run(folder, 1, 1);
  run.num_steps = 0;
  return run_on_grid(run, mixed_samples(1, 1, 320)).weights.at("model.embed_tokens.weight");
}

class PipelineFamily : public testing::TestWithParam<std::string> {};

TEST_P(PipelineFamily, StagesTrainAsOneRank) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  const std::string folder = oracle_model(GetParam());
  const GridResult one = run_on_grid(pipeline_run(folder, 1, 1), samples);
  for (int stages = 2; stages <= most_stages(GetParam()); stages *= 2) {
    SCOPED_TRACE(stages);
    const GridResult staged = run_on_grid(pipeline_run(folder, stages, stages), samples);
    expect_same_training(staged, one);
    // Every stage sums its microbatches in the order of one rank. With tied embeddings the first
    // and the last stage each sum their own gradients first.
    for (const auto& [name, values] : one.gradients) {
      if (GetParam() == "qwen2" && name == "model.embed_tokens.weight") continue;
      EXPECT_EQ(first_difference(staged.gradients.at(name), values), "") << name;
    }
  }
  SCOPED_TRACE("two replicas");
  expect_same_training(run_on_grid(pipeline_run(folder, 4, 2), samples),
                       run_on_grid(pipeline_run(folder, 2, 1), samples));
}

INSTANTIATE_TEST_SUITE_P(Oracles, PipelineFamily, testing::ValuesIn(kFamilies),
                         [](const auto& parameter) { return parameter.param; });

// One microbatch, fewer microbatches than stages, as many as stages, and one per sample.
TEST(Pipeline, AnyNumberOfMicrobatchesTrainsAlike) {
  const std::vector<Sample> samples = mixed_samples(7, 12, 320);
  const std::string folder = oracle_model("qwen3");
  for (const int64_t max_tokens : {4096, 96, 48, 1}) {
    SCOPED_TRACE(max_tokens);
    const GridResult one = run_on_grid(pipeline_run(folder, 1, 1, max_tokens), samples);
    expect_same_training(run_on_grid(pipeline_run(folder, 4, 4, max_tokens), samples), one);
  }
}

// Most replicas have only an empty microbatch.
TEST(Pipeline, OneSampleServesManyRanks) {
  for (const std::string family : {"qwen3", "glm4_moe"}) {
    const std::vector<Sample> samples = mixed_samples(1, 13, 320);
    const GridResult one = run_on_grid(pipeline_run(oracle_model(family), 1, 1), samples);
    expect_same_training(run_on_grid(pipeline_run(oracle_model(family), 6, 2), samples), one);
  }
}

TEST(Pipeline, UnevenStagesTrainAsOneRank) {
  const std::vector<Sample> samples = mixed_samples(7, 14, 320);
  const GridResult one = run_on_grid(pipeline_run(oracle_model("glm4_moe"), 1, 1), samples);
  GridRun run = pipeline_run(oracle_model("glm4_moe"), 2, 2);
  run.split.last_layers = 3;
  expect_same_training(run_on_grid(run, samples), one);
  run = pipeline_run(oracle_model("glm4_moe"), 3, 3);
  run.split.first_layers = 1;
  run.split.last_layers = 2;
  expect_same_training(run_on_grid(run, samples), one);
}

// Two stages of two chunks; an empty microbatch pads the last group. In qwen2 the head is tied to
// the embedding.
TEST(Pipeline, InterleavedStagesTrainAsOneRank) {
  const std::vector<Sample> samples = mixed_samples(7, 15, 320);
  for (const std::string family : {"qwen3", "qwen2", "glm4_moe"}) {
    for (const int64_t max_tokens : {4096, 48, 1}) {
      SCOPED_TRACE(fmt::format("{} {}", family, max_tokens));
      const GridResult one =
          run_on_grid(pipeline_run(oracle_model(family), 1, 1, max_tokens), samples);
      GridRun run = pipeline_run(oracle_model(family), 2, 2, max_tokens);
      run.split.layers_per_virtual_stage = 1;
      const GridResult two = run_on_grid(run, samples);
      expect_same_training(two, one);
      EXPECT_EQ(two.steps[0].microbatches_per_rank % 2, 0);
      if (max_tokens != 48) continue;
      run.world_size = 4;
      expect_same_training(run_on_grid(run, samples), one);
    }
  }
}

// With tied embeddings the first and last stage both have gradients; the norm counts the parameter
// once.
TEST(Pipeline, TiedEmbeddingsAreOneParameter) {
  const std::vector<Sample> samples = mixed_samples(7, 16);
  const std::string folder = test_data_path("golden/models/qwen3_tied_mqa");
  const GridResult one = run_on_grid(pipeline_run(folder, 1, 1), samples);
  for (const int world_size : {2, 4, 6}) {
    SCOPED_TRACE(world_size);
    const GridResult many = run_on_grid(pipeline_run(folder, world_size, 2), samples);
    expect_same_training(many, one);
    ASSERT_EQ(std::ssize(many.embeddings), world_size);
    for (const auto& table : many.embeddings)
      EXPECT_EQ(first_difference(table, many.embeddings[0]), "");
  }
}

// The last stage uses its own copy of the embedding table.
TEST(Pipeline, MtpLayersTrainOnTheLastStage) {
  const std::vector<Sample> samples = mixed_samples(7, 19, 320);
  for (const std::string family : {"glm4_moe", "deepseek_v3", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    GridRun run = pipeline_run(oracle_model(family), 1, 1);
    run.options.mtp_num_layers = 1;
    run.options.enable_mtp_training = true;
    const GridResult one = run_on_grid(run, samples);
    ASSERT_EQ(one.steps[0].mtp_losses.size(), 1u);
    EXPECT_GT(one.steps[0].mtp_losses[0], 0);
    run.world_size = run.sizes.pp = 2;
    const GridResult two = run_on_grid(run, samples);
    expect_same_training(two, one);
    ASSERT_EQ(two.embeddings.size(), 2u);
    EXPECT_EQ(first_difference(two.embeddings[0], two.embeddings[1]), "");
    EXPECT_NE(first_difference(two.embeddings[0], table_before(oracle_model(family))), "");
  }
}

// Expert loads are reported for all stages; a bias moves on the stage of its layer.
TEST(Pipeline, RoutersAreBalancedOnTheirStages) {
  const std::vector<Sample> samples = mixed_samples(7, 20, 320);
  for (const std::string family : {"glm4_moe", "deepseek_v3"}) {
    GridRun run = pipeline_run(oracle_model(family), 1, 1);
    run.options.moe_router_bias_update_rate = 0.01;
    run.options.moe_aux_loss_coeff = 0.1;
    run.options.moe_z_loss_coeff = 0.01;
    const GridResult one = run_on_grid(run, samples);
    run.world_size = run.sizes.pp = 4;
    const GridResult four = run_on_grid(run, samples);
    expect_same_training(four, one);
    int biases = 0;
    for (const auto& [name, values] : one.weights) {
      if (!name.ends_with("e_score_correction_bias")) continue;
      EXPECT_EQ(first_difference(four.weights.at(name), values), "") << name;
      ++biases;
    }
    EXPECT_GE(biases, 3);
    EXPECT_EQ(one.steps[0].routers.size(), 3u);
  }
}

// NaN on one stage alone: no stage moves its weights.
TEST(Pipeline, NanOnOneStageSkipsTheStepOnAll) {
  const std::vector<Sample> samples = mixed_samples(7, 17);
  GridRun run = pipeline_run(test_data_path("golden/models/llama"), 2, 2);
  run.num_steps = 0;
  const GridResult before = run_on_grid(run, samples);
  run.num_steps = 1;
  for (const int rank : {0, 1}) {
    run.rank_with_nan = rank;
    const GridResult after = run_on_grid(run, samples);
    EXPECT_TRUE(after.steps[0].skipped);
    for (const auto& [name, values] : before.weights)
      EXPECT_EQ(first_difference(after.weights.at(name), values), "") << name;
  }
}

// Deferred weight gradients reorder the operations but not the sums: equal bits, in planned memory
// too.
TEST(Pipeline, WeightGradientsApartChangeNoBit) {
  const std::vector<Sample> samples = mixed_samples(9, 18, 320);
  struct Grid {
    int world_size;
    dist::GridSizes sizes;
  };
  for (const std::string family : {"qwen3", "glm4_moe_lite"}) {
    for (const Grid& grid : {Grid{2, {.pp = 2}}, Grid{4, {.pp = 4}},
                             Grid{8, {.tp = 2, .cp = 2, .pp = 2}}, Grid{4, {.pp = 2, .ep = 1}}}) {
      GridRun run = pipeline_run(oracle_model(family), grid.world_size, grid.sizes.pp, 24);
      run.sizes = grid.sizes;
      const GridResult together = run_on_grid(run, samples);
      run.options.pipeline_schedule = "zb_h1";
      for (const std::optional<double> share : {std::optional<double>(), {0.0}, {1.0}}) {
        run.planned_share = share;
        const GridResult apart = run_on_grid(run, samples);
        EXPECT_EQ(apart.steps[0].gradient_norm, together.steps[0].gradient_norm);
        for (const auto& [name, values] : together.gradients)
          EXPECT_EQ(first_difference(apart.gradients.at(name), values), "") << name;
        for (const auto& [name, values] : together.weights)
          EXPECT_EQ(first_difference(apart.weights.at(name), values), "") << name;
      }
    }
  }
}

TEST(Pipeline, InterleavedStagesWithWeightGradientsApartAreRefused) {
  GridRun run = pipeline_run(oracle_model("qwen3"), 2, 2);
  run.split.layers_per_virtual_stage = 1;
  run.options.pipeline_schedule = "zb_h1";
  try {
    run_on_grid(run, mixed_samples(2, 18, 320));
    FAIL() << "interleaved stages ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("several stages"), std::string::npos) << error.what();
  }
}

// A stage's plan covers all microbatches in flight; keeping more activations changes no bit.
TEST(Pipeline, PlannedMemoryHoldsAllMicrobatchesInFlight) {
  const std::vector<Sample> samples = mixed_samples(9, 18, 320);
  for (const std::optional<int64_t> virtual_layers : {std::optional<int64_t>(), {1}}) {
    GridRun run = pipeline_run(oracle_model("qwen3"), 2, 2);
    run.split.layers_per_virtual_stage = virtual_layers;
    const GridResult grown = run_on_grid(run, samples);
    for (const double share : {0.0, 0.5, 1.0}) {
      run.planned_share = share;
      const GridResult planned = run_on_grid(run, samples);
      for (const auto& [name, values] : grown.weights)
        EXPECT_EQ(first_difference(planned.weights.at(name), values), "") << name << " " << share;
    }
  }
}

}  // namespace
}  // namespace slimexx::train
