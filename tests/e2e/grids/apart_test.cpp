// Tests whole GRPO runs with disaggregated ranks: samples and weights are bit-identical to those of
// colocated runs on the same grid.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"

namespace slimexx::e2e {
namespace {

using Settings = std::vector<std::string>;

struct Apart {
  std::string name;
  std::string model;
  int trainers = 1, generators = 1;
  Settings grid, engines;
};
void PrintTo(const Apart& apart, std::ostream* out) { *out << apart.name; }

Settings join(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

Settings apart_settings(int trainers, int generators) {
  return {"parallel.colocate=false", "parallel.actor_num_gpus=" + std::to_string(trainers),
          "parallel.rollout_num_gpus=" + std::to_string(generators)};
}

class ApartTrain : public testing::TestWithParam<Apart> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, GetParam().model);
    make_prompts(folder_);
  }
  Settings own_settings() const {
    const Apart& apart = GetParam();
    return join(join(apart_settings(apart.trainers, apart.generators), apart.grid), apart.engines);
  }
  int num_ranks() const { return GetParam().trainers + GetParam().generators; }
  // Fails if a log-prob in training differs from generation, or an engine's weights from the
  // trainer's. Ranks are threads, or processes under mpirun.
  Finished train(const std::string& name, const Settings& settings, int ranks,
                 bool as_processes = false, const Settings& flags = {}) const {
    Settings all = train_arguments(
        folder_, folder_ / name,
        join(settings,
             {"debug.check_weight_hash=true", "checkpoint.save_hf=" + (folder_ / (name + "/hf"))}));
    all = join(all, flags);
    if (as_processes) return run_slimexx(ranks, all);
    all.push_back("--thread-ranks=" + std::to_string(ranks));
    return run_slimexx(0, all);
  }
  void expect_same_run(const std::string& name, const std::string& other) const {
    const auto rows = read_rows(folder_ / (name + "/metrics.jsonl"));
    const auto others = read_rows(folder_ / (other + "/metrics.jsonl"));
    ASSERT_EQ(rows.size(), others.size());
    for (size_t i = 0; i < rows.size(); ++i)
      for (const char* key : {"train/loss", "train/grad_norm", "train/param_norm",
                              "rollout/num_tokens", "rollout/log_probs", "train/mismatch_tokens"})
        if (others[i].contains(key)) {
          EXPECT_EQ(number(rows[i], key), number(others[i], key)) << key << " of row " << i;
        }
    EXPECT_EQ(number(rows.back(), "train/mismatch_tokens"), 0);
    EXPECT_TRUE(weights(name) == weights(other)) << name << " and " << other;
  }
  std::string weights(const std::string& name) const {
    return read_bytes(folder_ / (name + "/hf/model.safetensors"));
  }
  const Folder folder_;
};

TEST_P(ApartTrain, MakesTheWeightsOfColocatedRanks) {
  const Apart& apart = GetParam();
  Finished run = train("apart", own_settings(), num_ranks());
  ASSERT_EQ(run.status, 0) << run.text();
  run = train("colocated", apart.grid, apart.trainers);
  ASSERT_EQ(run.status, 0) << run.text();
  expect_same_run("apart", "colocated");
}

const Settings kTp2 = {"parallel.tensor_model_parallel_size=2"};
const Settings kEngineTp2 = {"rollout.rollout_num_gpus_per_engine=2"};
INSTANTIATE_TEST_SUITE_P(
    Grids, ApartTrain,
    testing::Values(Apart{"qwen3_dp2_two_engines", "oracle/qwen3", 2, 2, {}, {}},
                    Apart{"qwen3_tp2_engine_tp2", "oracle/qwen3", 2, 2, kTp2, kEngineTp2},
                    Apart{"qwen2_one_and_three_engines", "oracle/qwen2", 1, 3, {}, {}},
                    Apart{"glm4_pp2_one_engine",
                          "oracle/glm4",
                          2,
                          1,
                          {"parallel.pipeline_model_parallel_size=2"},
                          {}},
                    Apart{"qwen3_tp2_cp2_two_engines_tp2", "oracle/qwen3", 4, 4,
                          join(kTp2, {"parallel.context_parallel_size=2"}), kEngineTp2},
                    Apart{"glm4_moe_ep2_engine_dp2_ep2",
                          "oracle/glm4_moe",
                          2,
                          2,
                          {"parallel.expert_model_parallel_size=2"},
                          {"rollout.rollout_num_gpus_per_engine=2", "rollout.dp_size=2",
                           "rollout.enable_dp_attention=true", "rollout.ep_size=2"}}),
    [](const auto& instance) { return instance.param.name; });

// A run is evaluated, saved and resumed between two rollouts; then resumed by colocated ranks.
class ApartCheckpoints : public ApartTrain {};

TEST_P(ApartCheckpoints, GoOn) {
  const Settings whole =
      join(own_settings(),
           {"checkpoint.save_interval=2", "eval.eval_interval=2",
            "eval.eval_prompt_data={set: " + (folder_ / "prompts.jsonl") + "}",
            "rl.use_kl_loss=true", "rl.kl_loss_coef=0.1", "model.ref_load=" + (folder_ / "model")});
  Finished run = train("straight", join(whole, {"rollout.num_rollout=4"}), num_ranks());
  ASSERT_EQ(run.status, 0) << run.text();
  const Json evaluated = read_rows(folder_ / "straight/metrics.jsonl").front();
  EXPECT_EQ(number(evaluated, "eval/set/num_samples"), 8);
  run = train("resumed", join(whole, {"rollout.num_rollout=2"}), num_ranks());
  ASSERT_EQ(run.status, 0) << run.text();
  run = train("resumed", join(whole, {"rollout.num_rollout=4"}), num_ranks(), false, {"--resume"});
  ASSERT_EQ(run.status, 0) << run.text();
  expect_same_run("resumed", "straight");
  const std::string start = folder_ / "straight/checkpoints/step_000002";
  Settings together = join(whole, GetParam().grid);
  together = join(together, {"parallel.colocate=true", "parallel.actor_num_gpus=null",
                             "parallel.rollout_num_gpus=null", "rollout.num_rollout=4"});
  run = train("together", together, GetParam().trainers, false, {"--resume=" + start});
  ASSERT_EQ(run.status, 0) << run.text();
  EXPECT_TRUE(weights("together") == weights("straight"));
}

INSTANTIATE_TEST_SUITE_P(Grids, ApartCheckpoints,
                         testing::Values(Apart{
                             "qwen3_dp2_two_engines", "oracle/qwen3", 2, 2, {}, {}}),
                         [](const auto& instance) { return instance.param.name; });

class ApartProcesses : public ApartTrain {};

TEST_P(ApartProcesses, MakeTheWeightsOfThreads) {
  if (const std::string why = why_no_ranks(); !why.empty()) GTEST_SKIP() << why;
  Finished run = train("threads", own_settings(), num_ranks());
  ASSERT_EQ(run.status, 0) << run.text();
  run = train("processes", own_settings(), num_ranks(), true);
  ASSERT_EQ(run.status, 0) << run.text();
  expect_same_run("processes", "threads");
}

// An error on all trainer ranks also ends the ranks that generate.
TEST_P(ApartProcesses, EndTogether) {
  if (const std::string why = why_no_ranks(); !why.empty()) GTEST_SKIP() << why;
  const Finished run =
      train("diverges", join(own_settings(), {"optimizer.lr=1e30", "train.max_skipped_steps=0"}),
            num_ranks(), true);
  EXPECT_EQ(run.status, 4) << run.text();
  const Json status = Json::parse(read_bytes(folder_ / "diverges/status.json"));
  EXPECT_EQ(status.at("state"), "failed");
  EXPECT_NE(status.at("error").get<std::string>().find("1 optimizer steps in a row had NaN"),
            std::string::npos)
      << status;
}

INSTANTIATE_TEST_SUITE_P(Grids, ApartProcesses,
                         testing::Values(Apart{"qwen3_one_and_one", "oracle/qwen3", 1, 1, {}, {}}),
                         [](const auto& instance) { return instance.param.name; });

TEST(ApartSettings, ThatDoNotAddUpAreRefused) {
  const Folder folder;
  make_checkpoint(folder, "oracle/qwen3");
  make_prompts(folder);
  expect_refused(folder, 4, apart_settings(3, 2),
                 {"parallel.actor_num_gpus: 3 + rollout_num_gpus 2 = 5", "the run has 4 ranks"});
  expect_refused(
      folder, 4, {"parallel.colocate=false", "parallel.actor_num_gpus=2"},
      {"parallel.rollout_num_gpus: is missing", "set it to the number of ranks that generate"});
  expect_refused(folder, 4, join(apart_settings(3, 1), kTp2),
                 {"3 ranks are not divisible by tp 2 x cp 1 x pp 1"});
  expect_refused(folder, 4, join(apart_settings(1, 3), kEngineTp2),
                 {"3 ranks cannot be divided into engines of 2 ranks"});
  expect_refused(folder, 2,
                 join(apart_settings(1, 1), {"debug.load_rollout=" + (folder / "model")}),
                 {"parallel.colocate: is false, but the run generates nothing"});
}

}  // namespace
}  // namespace slimexx::e2e
