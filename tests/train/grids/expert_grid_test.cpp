// Expert-parallel training agrees with training on one rank.
#include <gtest/gtest.h>

#include "slimexx/dist/host.h"
#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

GridRun expert_run(const std::string& family, int world_size, int ep, const TrainOptions& options) {
  return {.folder = test_data_path("golden/oracle/") + family,
          .world_size = world_size,
          .sizes = {.ep = ep},
          .options = options,
          .num_steps = 2};
}

class ExpertGrid : public testing::TestWithParam<std::string> {};

// There are fewer microbatches than eight ranks: some ranks run empty ones and exchange no rows.
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
      EXPECT_FALSE(one.steps[0].routers.empty());
    }
  }
}

// The plan has room for the rows that ranks with small or empty microbatches receive from others.
TEST_P(ExpertGrid, FitsThePlannedMemory) {
  const std::vector<Sample> samples = mixed_samples(5, 12, 320);
  for (const std::string recompute : {"auto", "none", "full"}) {
    SCOPED_TRACE(recompute);
    TrainOptions options = packed(60);
    options.recompute_granularity = recompute;
    GridRun run = expert_run(GetParam(), 4, 4, options);
    const GridResult grown = run_on_grid(run, samples);
    run.planned_share = 0;
    const GridResult planned = run_on_grid(run, samples);
    expect_same_training(planned, grown);
    EXPECT_EQ(planned.weights, grown.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertGrid,
                         testing::Values("qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3",
                                         "glm_moe_dsa"),
                         [](const auto& instance) { return instance.param; });

// Expert groups cross tp, cp and dp ranks within a pipeline stage.
TEST(ExpertGrids, CrossOtherAxes) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  struct Grid {
    int world_size;
    dist::GridSizes sizes;
  };
  const Grid grids[] = {{2, {.tp = 2, .ep = 2}},         {8, {.tp = 2, .ep = 4}},
                        {8, {.tp = 2, .ep = 8}},         {4, {.cp = 2, .ep = 4}},
                        {4, {.pp = 2, .ep = 2}},         {8, {.tp = 2, .cp = 2, .ep = 2}},
                        {8, {.tp = 2, .pp = 2, .ep = 4}}};
  for (const std::string family : {"qwen3_moe", "glm4_moe"}) {
    for (const Grid& grid : grids) {
      SCOPED_TRACE(family + ", tp " + std::to_string(grid.sizes.tp) + " cp " +
                   std::to_string(grid.sizes.cp) + " pp " + std::to_string(grid.sizes.pp) + " ep " +
                   std::to_string(grid.sizes.ep) + " of " + std::to_string(grid.world_size));
      GridRun alone = expert_run(family, 1, 1, packed(48));
      alone.optimizer.adam_eps = 1e-5;  // no full steps on gradients that are pure rounding
      GridRun run = alone;
      alone.leaves = grid.sizes.tp;
      run.world_size = grid.world_size;
      run.sizes = grid.sizes;
      run.options.max_tokens_per_gpu /= grid.sizes.cp;
      const GridResult one = run_on_grid(alone, samples);
      const GridResult many = run_on_grid(run, samples);
      expect_same_training(many, one);
      run.planned_share = 0;
      expect_same_training(run_on_grid(run, samples), one);
    }
  }
}

// Router losses and biases are computed over whole sequences, which tp and cp ranks split. Some
// sequences are shorter than the number of chunks, and some ranks have no rows.
TEST(ExpertGrids, RoutersSeeWholeSequences) {
  constexpr float kRate = 0.125f;  // biases move without rounding
  std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (Sample& s : samples_of_lengths({2, 3, 5, 37}, 1)) samples.push_back(std::move(s));
  struct Grid {
    int world_size;
    dist::GridSizes sizes;
  };
  const Grid grids[] = {{2, {.tp = 2}},          {2, {.cp = 2}},
                        {3, {.cp = 3}},          {4, {.tp = 2, .cp = 2, .ep = 4}},
                        {8, {.tp = 4, .cp = 2}}, {4, {.cp = 2, .pp = 2, .ep = 2}}};
  for (const std::string family : {"qwen3_moe", "glm4_moe", "deepseek_v3"}) {
    TrainOptions options = packed(60);
    options.moe_aux_loss_coeff = 0.5;
    options.moe_z_loss_coeff = 0.25;
    options.moe_router_bias_update_rate = kRate;
    for (const Grid& grid : grids) {
      SCOPED_TRACE(family + ", tp " + std::to_string(grid.sizes.tp) + " cp " +
                   std::to_string(grid.sizes.cp) + " pp " + std::to_string(grid.sizes.pp));
      GridRun alone = expert_run(family, 1, 1, options);
      alone.num_steps = 1;
      alone.optimizer.adam_eps = 1e-5;  // no full steps on gradients that are pure rounding
      GridRun run = alone;
      alone.leaves = grid.sizes.tp;
      run.world_size = grid.world_size;
      run.sizes = grid.sizes;
      run.options.max_tokens_per_gpu = 60 / grid.sizes.cp;
      const GridResult one = run_on_grid(alone, samples);
      const GridResult many = run_on_grid(run, samples);
      expect_same_training(many, one);
      for (const auto& [name, values] : one.weights) {
        if (name.ends_with("e_score_correction_bias")) {
          EXPECT_EQ(many.weights.at(name), values) << name;
        }
      }
    }
  }
}

TEST(ExpertGrids, MtpLayersTrainAsOnOneRank) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  TrainOptions options = packed(48);
  options.enable_mtp_training = true;
  options.mtp_num_layers = 1;
  const GridResult one = run_on_grid(expert_run("glm4_moe", 1, 1, options), samples);
  for (const int ranks : {2, 4}) {
    const GridResult split = run_on_grid(expert_run("glm4_moe", ranks, ranks, options), samples);
    expect_same_training(split, one);
    ASSERT_EQ(split.steps[0].mtp_losses.size(), 1u);
    EXPECT_NEAR(split.steps[0].mtp_losses[0], one.steps[0].mtp_losses[0], 1e-6);
  }
}

// The ranks that hold an expert (an edp group) own all its moments; no other rank owns any of them.
TEST(ExpertGrids, MomentsLiveWithTheOwnersOfExperts) {
  const std::string path = test_data_path("golden/oracle/glm4_moe");
  const io::HfFolder folder = io::HfFolder::open(path);
  const model::ModelSpec spec = model::read_model_spec(folder.config(), path + "/config.json");
  const dist::GridSizes sizes{.ep = 2};
  dist::run_thread_ranks(4, [&](dist::Collective& host) {
    const dist::ProcessGrid grid(host, sizes, {});
    const model::Layout layout = model::make_layout({model::list_parameters(spec)}, grid.shape());
    model::ParameterStore store(*layout.ranks[static_cast<size_t>(host.rank())], {}, true);
    const model::Decoder decoder(spec, {}, 128, model::whole_model(spec), sizes);
    Trainer trainer(decoder, store, host, grid.groups(), packed(48), {}, 1, {});
    const int64_t first = 4 * grid.groups().ep.rank();
    size_t num_expert_parts = 0;
    for (const model::ParameterInfo& info : store.infos()) {
      for (const model::HfPart& part : info.parts) {
        const size_t at = part.name.find(".experts.");
        if (at == std::string::npos) continue;
        const int64_t expert = std::stoll(part.name.substr(at + 9));
        EXPECT_TRUE(expert >= first && expert < first + 4) << part.name;
        EXPECT_EQ(info.reduce_group, model::ReduceGroup::kExpert) << part.name;
        ++num_expert_parts;
      }
    }
    EXPECT_EQ(num_expert_parts, 3u * 4 * 4);  // matrices, layers and MTP layers, experts
    bool has_experts = false;
    for (const OwnedGroup& group : trainer.optimizer().groups()) {
      const bool is_expert = group.parameters->reduce_group == model::ReduceGroup::kExpert;
      if (!is_expert || !group.is_trained()) continue;
      has_experts = true;
      EXPECT_EQ(group.ranks, &grid.groups().edp);
      EXPECT_EQ(group.ranks->size(), 2);
      double owned[1] = {static_cast<double>(group.exp_avg.num_elements())};
      dist::all_reduce_sum(host, owned);
      EXPECT_EQ(owned[0], static_cast<double>(2 * group.parameters->num_elements));
    }
    EXPECT_TRUE(has_experts);
  });
}

}  // namespace
}  // namespace slimexx::train
