// Tests whole GRPO runs with engines of several ranks: generation and training agree to the bit for
// any two layouts, and an impossible layout is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"

namespace slimexx::e2e {
namespace {

struct Layouts {
  std::string name;
  std::string model;
  int ranks = 1;
  int tp = 1, cp = 1, pp = 1, ep = 1;                         // training
  int engine_ranks = 1, attention_groups = 1, engine_ep = 1;  // generation
  int dense_tp = 0;                                           // 0: the TP of attention
  int redundant = 0;                                          // redundant experts
};
void PrintTo(const Layouts& layouts, std::ostream* out) { *out << layouts.name; }

std::vector<std::string> engine_settings(int ranks, int attention_groups, int ep) {
  return {"rollout.rollout_num_gpus_per_engine=" + std::to_string(ranks),
          "rollout.dp_size=" + std::to_string(attention_groups), "rollout.enable_dp_attention=true",
          "rollout.ep_size=" + std::to_string(ep)};
}

std::vector<std::string> training_settings(const Layouts& layouts) {
  return {"parallel.tensor_model_parallel_size=" + std::to_string(layouts.tp),
          "parallel.context_parallel_size=" + std::to_string(layouts.cp),
          "parallel.pipeline_model_parallel_size=" + std::to_string(layouts.pp),
          "parallel.expert_model_parallel_size=" + std::to_string(layouts.ep),
          "parallel.expert_tensor_parallel_size=1"};
}

class EngineRanksTrain : public testing::TestWithParam<Layouts> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, GetParam().model);
    make_prompts(folder_);
  }
  // Fails if a log-prob in training differs from generation, or an engine's weights from the
  // trainer's. Ranks are processes under mpirun, or threads.
  Finished train(const std::string& name, const std::vector<std::string>& engine,
                 bool as_processes = false) const {
    std::vector<std::string> settings = training_settings(GetParam());
    settings.insert(settings.end(), engine.begin(), engine.end());
    settings.push_back("debug.check_weight_hash=true");
    settings.push_back("checkpoint.save_hf=" + (folder_ / (name + "/hf")));
    std::vector<std::string> all = train_arguments(folder_, folder_ / name, settings);
    if (as_processes) return run_slimexx(GetParam().ranks, all);
    all.push_back("--thread-ranks=" + std::to_string(GetParam().ranks));
    return run_slimexx(0, all);
  }
  std::vector<std::string> engine() const {
    const Layouts& layouts = GetParam();
    std::vector<std::string> settings =
        engine_settings(layouts.engine_ranks, layouts.attention_groups, layouts.engine_ep);
    if (layouts.dense_tp > 0)
      settings.push_back("rollout.moe_dense_tp_size=" + std::to_string(layouts.dense_tp));
    settings.push_back("rollout.ep_num_redundant_experts=" + std::to_string(layouts.redundant));
    return settings;
  }
  void expect_exact(const std::string& name, const Finished& run) const {
    ASSERT_EQ(run.status, 0) << run.text();
    for (const Json& row : read_rows(folder_ / (name + "/metrics.jsonl"))) {
      if (row.contains("train/mismatch_tokens")) {
        EXPECT_EQ(number(row, "train/mismatch_tokens"), 0);
      }
    }
    const Json last = read_rows(folder_ / (name + "/metrics.jsonl")).back();
    EXPECT_EQ(number(last, "train/train_rollout_logprob_abs_diff"), 0);
    EXPECT_GT(number(last, "train/grad_norm"), 0);
  }
  std::string exported(const std::string& name) const {
    return read_bytes(folder_ / (name + "/hf/model.safetensors"));
  }
  const Folder folder_;
};

TEST_P(EngineRanksTrain, IsExact) {
  expect_exact("run", train("run", engine()));
  const Layouts& layouts = GetParam();
  // Engines of one rank use as many leaves as a trainer with several ranks: the same samples in the
  // same order give the same weights.
  if (layouts.tp != layouts.engine_ranks / layouts.attention_groups) return;
  expect_exact("alone", train("alone", {}));
  EXPECT_TRUE(exported("run") == exported("alone"));
}

INSTANTIATE_TEST_SUITE_P(
    Grids, EngineRanksTrain,
    testing::Values(
        Layouts{"qwen3_tp2_engine_tp2", "oracle/qwen3", 2, 2, 1, 1, 1, 2, 1, 1},
        Layouts{"qwen3_tp2_two_engines_tp2", "oracle/qwen3", 4, 2, 1, 1, 1, 2, 1, 1},
        Layouts{"glm4_pp2_engine_tp2", "oracle/glm4", 2, 1, 1, 2, 1, 2, 1, 1},
        Layouts{"qwen2_dp2_engine_tp2", "oracle/qwen2", 2, 1, 1, 1, 1, 2, 1, 1},
        Layouts{"deepseek_v3_tp2_pp2_ep2_two_engines_tp2_ep2", "oracle/deepseek_v3", 4, 2, 1, 2, 2,
                2, 1, 2},
        Layouts{"glm4_moe_ep4_engine_dp4_ep4", "oracle/glm4_moe", 4, 1, 1, 1, 4, 4, 4, 4},
        Layouts{"glm4_moe_lite_tp2_ep4_engine_tp2_dp2_ep4", "oracle/glm4_moe_lite", 4, 2, 1, 1, 4,
                4, 2, 4},
        Layouts{"glm_moe_dsa_cp2_ep2_engine_tp2_dp2_ep4", "oracle/glm_moe_dsa", 4, 1, 2, 1, 2, 4, 2,
                4},
        Layouts{"qwen3_moe_pp2_ep2_engine_dp2", "oracle/qwen3_moe", 4, 1, 1, 2, 2, 2, 2, 1},
        Layouts{"glm4_moe_tp2_ep4_engine_whole_mlps", "oracle/glm4_moe", 4, 2, 1, 1, 4, 4, 2, 4, 1},
        Layouts{"glm4_moe_engine_dp3_ep3", "oracle/glm4_moe", 3, 1, 1, 1, 1, 3, 3, 3},
        Layouts{"glm4_moe_lite_tp2_ep2_engine_tp2_ep6_redundant3", "oracle/glm4_moe_lite", 6, 2, 1,
                1, 2, 6, 3, 6, 1, 3},
        Layouts{"qwen3_moe_ep4_engine_dp4_ep4_redundant8", "oracle/qwen3_moe", 4, 1, 1, 1, 4, 4, 4,
                4, 0, 8},
        Layouts{"deepseek_v3_tp2_ep2_engine_dp2_ep2", "oracle/deepseek_v3", 4, 2, 1, 1, 2, 4, 2, 2},
        Layouts{"glm4_moe_tp2_ep2_engine_whole_experts", "oracle/glm4_moe", 2, 2, 1, 1, 2, 2, 1,
                1}),
    [](const auto& instance) { return instance.param.name; });

// Compares runs whose ranks are processes with runs whose ranks are threads: one engine with two
// attention groups, and two engines of two ranks.
class EngineProcesses : public EngineRanksTrain {};

TEST_P(EngineProcesses, MakeTheWeightsOfThreads) {
  if (const std::string why = why_no_ranks(); !why.empty()) GTEST_SKIP() << why;
  expect_exact("threads", train("threads", engine()));
  expect_exact("processes", train("processes", engine(), true));
  EXPECT_TRUE(exported("threads") == exported("processes"));
}

INSTANTIATE_TEST_SUITE_P(Grids, EngineProcesses,
                         testing::Values(Layouts{"glm4_moe_tp2_ep4_engine_tp2_dp2_ep4",
                                                 "oracle/glm4_moe", 4, 2, 1, 1, 4, 4, 2, 4},
                                         Layouts{"qwen3_pp2_two_engines_tp2", "oracle/qwen3", 4, 1,
                                                 1, 2, 1, 2, 1, 1}),
                         [](const auto& instance) { return instance.param.name; });

// With random weights a recipe can be timed before its checkpoint is available.
TEST(EngineRanksSettings, RandomWeightsNeedNoWeightFiles) {
  const Folder folder;
  const std::string model = make_checkpoint(folder, "oracle/glm4_moe");
  make_prompts(folder);
  ASSERT_TRUE(std::filesystem::remove(model + "/model.safetensors"));
  std::vector<std::string> settings = engine_settings(2, 2, 2);
  settings.insert(settings.end(), {"parallel.expert_model_parallel_size=2",
                                   "debug.random_weights=true", "debug.check_weight_hash=true",
                                   "rl.use_kl_loss=true", "model.ref_load=" + model});
  std::vector<std::string> all = train_arguments(folder, folder / "run", settings);
  all.push_back("--thread-ranks=2");
  const Finished f = run_slimexx(0, all);
  ASSERT_EQ(f.status, 0) << f.text();
  const auto rows = read_rows(folder / "run/metrics.jsonl");
  EXPECT_EQ(number(rows.back(), "train/mismatch_tokens"), 0);
  EXPECT_EQ(number(rows.front(), "train/kl_loss"), 0);  // the reference is the policy's own start
}

TEST(EngineRanksSettings, ThatCannotBeLaidOutAreRefusedWithTheNearest) {
  const Folder folder;
  make_checkpoint(folder, "oracle/glm4_moe");
  make_prompts(folder);
  const struct {
    int ranks;
    std::vector<std::string> settings;
    std::vector<std::string> has;
  } cases[] = {
      {4,
       {"rollout.rollout_num_gpus_per_engine=3"},
       {"rollout.rollout_num_gpus_per_engine: 4 ranks cannot be divided into engines of 3 ranks",
        "nearest valid sizes: rollout_num_gpus_per_engine 4"}},
      {2,
       {"rollout.rollout_num_gpus_per_engine=2", "rollout.ep_size=2",
        "rollout.ep_num_redundant_experts=9"},
       {"rollout.ep_num_redundant_experts", "8 experts and 9 redundant ones on ep_size 2",
        "nearest valid sizes: rollout_num_gpus_per_engine 2, dp_size 1, ep_size 2"}},
      {3,
       {"rollout.rollout_num_gpus_per_engine=3", "rollout.ep_size=3"},
       {"num_attention_heads 8",
        "nearest valid sizes: rollout_num_gpus_per_engine 3, dp_size 3 with enable_dp_attention: "
        "true, ep_size 3"}}};
  for (const auto& c : cases) expect_refused(folder, c.ranks, c.settings, c.has);
}

}  // namespace
}  // namespace slimexx::e2e
