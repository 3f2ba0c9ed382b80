// Tests whole GRPO runs on grids, with ranks as threads: generation and training agree to the bit,
// a run continues on another grid, and sizes that do not divide are refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"
#include "slimexx/base/file.h"

namespace slimexx::e2e {
namespace {

struct Grid {
  std::string name;
  std::string model;
  int ranks = 1;
  std::vector<std::string> sizes;
};
void PrintTo(const Grid& grid, std::ostream* out) { *out << grid.name; }

std::vector<std::string> sizes_of(int tp, int cp, int pp, int ep, int etp = 1) {
  return {"parallel.tensor_model_parallel_size=" + std::to_string(tp),
          "parallel.context_parallel_size=" + std::to_string(cp),
          "parallel.pipeline_model_parallel_size=" + std::to_string(pp),
          "parallel.expert_model_parallel_size=" + std::to_string(ep),
          "parallel.expert_tensor_parallel_size=" + std::to_string(etp)};
}

class GridTrain : public testing::TestWithParam<Grid> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, GetParam().model);
    make_prompts(folder_);
  }
  Finished train(const std::string& name, int ranks, std::vector<std::string> settings,
                 const std::vector<std::string>& flags = {}) const {
    settings.push_back("checkpoint.save_interval=1");
    settings.push_back("debug.check_weight_hash=true");
    settings.push_back("checkpoint.save_hf=" + (folder_ / (name + "/hf")));
    std::vector<std::string> all = train_arguments(folder_, folder_ / name, settings);
    all.push_back("--thread-ranks=" + std::to_string(ranks));
    all.insert(all.end(), flags.begin(), flags.end());
    return run_slimexx(0, all);
  }
  std::string exported(const std::string& name) const {
    return read_bytes(folder_ / (name + "/hf/model.safetensors"));
  }
  const Folder folder_;
};

// A run fails if a log-prob in training differs from generation, or an engine's weights from the
// trainer's.
TEST_P(GridTrain, IsExactAndGoesOnOnAnotherGrid) {
  const Grid& grid = GetParam();
  const Finished first = train("grid", grid.ranks, grid.sizes);
  ASSERT_EQ(first.status, 0) << first.text();
  const Json row = read_rows(folder_ / "grid/metrics.jsonl").back();
  EXPECT_EQ(number(row, "train/mismatch_tokens"), 0);
  EXPECT_GT(number(row, "train/grad_norm"), 0);
  const std::string saved = exported("grid");
  // No rollout is left: the export is the loaded state.
  const Finished second = train("grid", 1, {}, {"--resume"});
  ASSERT_EQ(second.status, 0) << second.text();
  EXPECT_TRUE(exported("grid") == saved);
}

INSTANTIATE_TEST_SUITE_P(
    Grids, GridTrain,
    testing::Values(Grid{"qwen3_tp2_cp2_pp2", "oracle/qwen3", 8, sizes_of(2, 2, 2, 1)},
                    Grid{"glm4_moe_tp2_pp2_ep4", "oracle/glm4_moe", 8, sizes_of(2, 1, 2, 4)},
                    Grid{"glm4_moe_lite_pp2_ep2", "oracle/glm4_moe_lite", 4, sizes_of(1, 1, 2, 2)},
                    Grid{"deepseek_v3_tp2_ep4", "oracle/deepseek_v3", 4, sizes_of(2, 1, 1, 4)},
                    Grid{"glm_moe_dsa_tp2_cp2_ep4", "oracle/glm_moe_dsa", 4, sizes_of(2, 2, 1, 4)},
                    Grid{"qwen3_moe_tp2_etp2", "oracle/qwen3_moe", 4, sizes_of(2, 1, 1, 2, 2)},
                    Grid{"glm4_moe_pp2_etp4", "oracle/glm4_moe", 8, sizes_of(2, 1, 2, 1, 4)},
                    Grid{"glm_moe_dsa_cp2_etp2", "oracle/glm_moe_dsa", 4, sizes_of(1, 2, 1, 2, 2)}),
    [](const auto& instance) { return instance.param.name; });

// MTP layers read the embedding; their stage has a copy of it.
TEST(GridResume, OfMtpLayersOnTheirOwnStageGoesOnToTheByte) {
  const Folder folder;
  make_checkpoint(folder, "oracle/glm4_moe");
  make_prompts(folder);
  const auto run = [&](const std::string& name, int rollouts, bool resumes) {
    std::vector<std::string> settings = sizes_of(1, 1, 2, 2);
    for (const char* setting : {"checkpoint.save_interval=1", "train.enable_mtp_training=true",
                                "train.mtp_num_layers=1", "train.mtp_loss_scaling_factor=1"})
      settings.push_back(setting);
    settings.push_back("rollout.num_rollout=" + std::to_string(rollouts));
    settings.push_back("checkpoint.save_hf=" + (folder / (name + "/hf")));
    std::vector<std::string> all = train_arguments(folder, folder / name, settings);
    all.push_back("--thread-ranks=4");
    if (resumes) all.push_back("--resume");
    const Finished f = run_slimexx(0, all);
    ASSERT_EQ(f.status, 0) << f.text();
  };
  run("whole", 3, false);
  run("halted", 2, false);
  const std::string whole = read_bytes(folder / "whole/hf/model.safetensors");
  ASSERT_FALSE(read_bytes(folder / "halted/hf/model.safetensors") == whole);
  run("halted", 3, true);
  EXPECT_TRUE(read_bytes(folder / "halted/hf/model.safetensors") == whole);
}

// A run of one rank continues with column shards of experts, and that run on another grid with
// whole experts. When no rollout is left, the export is the loaded state.
TEST(GridResume, GoesToColumnsOfExpertsAndBack) {
  const Folder folder;
  make_checkpoint(folder, "oracle/glm4_moe");
  make_prompts(folder);
  const std::string exported = folder / "run/hf/model.safetensors";
  const auto run = [&](int ranks, std::vector<std::string> settings, int rollouts, bool resumes) {
    settings.push_back("checkpoint.save_interval=1");
    settings.push_back("debug.check_weight_hash=true");
    settings.push_back("rollout.num_rollout=" + std::to_string(rollouts));
    settings.push_back("checkpoint.save_hf=" + (folder / "run/hf"));
    std::vector<std::string> all = train_arguments(folder, folder / "run", settings);
    all.push_back("--thread-ranks=" + std::to_string(ranks));
    if (resumes) all.push_back("--resume");
    std::filesystem::remove_all(folder / "run/hf");
    const Finished f = run_slimexx(0, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_bytes(exported);
  };
  const auto columns = sizes_of(2, 1, 1, 2, 2), whole = sizes_of(1, 2, 1, 2, 1);
  const std::string first = run(1, {}, 1, false);
  EXPECT_TRUE(run(4, columns, 1, true) == first);
  const std::string second = run(4, columns, 2, true);
  EXPECT_FALSE(second == first);
  EXPECT_TRUE(run(2, whole, 2, true) == second);
}

// All backends send the same bytes.
TEST(GridProcesses, TrainColumnsOfExpertsAsThreadsDo) {
  if (!why_no_ranks().empty()) GTEST_SKIP() << why_no_ranks();
  const Folder folder;
  make_checkpoint(folder, "oracle/deepseek_v3");
  make_prompts(folder);
  const auto run = [&](const std::string& name, int processes, const std::string& flag) {
    std::vector<std::string> settings = sizes_of(2, 1, 1, 2, 2);
    settings.push_back("checkpoint.save_hf=" + (folder / (name + "/hf")));
    std::vector<std::string> all = train_arguments(folder, folder / name, settings);
    if (!flag.empty()) all.push_back(flag);
    const Finished f = run_slimexx(processes, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_bytes(folder / (name + "/hf/model.safetensors"));
  };
  EXPECT_TRUE(run("processes", 4, "") == run("threads", 0, "--thread-ranks=4"));
}

// Ranks are threads, and also processes if there is MPI.
TEST(GridScore, HasTheLinesOfOneRank) {
  const Folder folder;
  make_checkpoint(folder, "oracle/glm4_moe");
  std::string rows;
  for (int row = 0; row < 9; ++row) {
    rows += "{\"tokens\": [";
    for (int t = 0; t < 3 + 11 * row; ++t)
      rows += (t > 0 ? ", " : "") + std::to_string((row * 37 + t * t * 13) % 320);
    rows += "]}\n";
  }
  write_file_atomic(folder / "tokens.jsonl", rows);
  const auto score = [&](const std::string& name, int processes, std::vector<std::string> flags) {
    std::vector<std::string> all = {"score",      "--hf-checkpoint",       folder / "model",
                                    "--input",    folder / "tokens.jsonl", "--output",
                                    folder / name};
    all.insert(all.end(), flags.begin(), flags.end());
    const Finished f = run_slimexx(processes, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_bytes(folder / name);
  };
  const std::string one = score("one", 0, {});
  ASSERT_FALSE(one.empty());
  const std::vector<std::string> stages = {"--pipeline-model-parallel-size=2",
                                           "--expert-model-parallel-size=2"};
  EXPECT_TRUE(score("threads", 0, {stages[0], stages[1], "--thread-ranks=4"}) == one);
  EXPECT_TRUE(score("columns", 0,
                    {"--pipeline-model-parallel-size=2", "--expert-tensor-parallel-size=2",
                     "--thread-ranks=4"}) == one);
  EXPECT_TRUE(score("chunks", 0,
                    {"--context-parallel-size=3", "--expert-model-parallel-size=2",
                     "--thread-ranks=6"}) == one);
  if (why_no_ranks().empty()) {
    EXPECT_TRUE(score("processes", 4, stages) == one);
    EXPECT_TRUE(score("columns_of_processes", 4,
                      {"--expert-model-parallel-size=2", "--expert-tensor-parallel-size=2"}) ==
                one);
  }
}

TEST(GridSettings, ThatTheModelDoesNotDivideByAreRefusedByName) {
  const Folder folder;
  make_checkpoint(folder, "oracle/glm4_moe");
  make_prompts(folder);
  const struct {
    int ranks;
    std::vector<std::string> sizes;
    std::vector<std::string> has;
  } cases[] = {{3, sizes_of(3, 1, 1, 1), {"num_attention_heads 8", "tensor_model_parallel_size 3"}},
               {3, sizes_of(1, 1, 3, 1), {"4 layers are not divisible by 3 pipeline stages"}},
               {3,
                sizes_of(1, 1, 1, 3),
                {"8 experts are not divisible by 3 ranks", "expert_model_parallel_size"}},
               {4, sizes_of(2, 1, 3, 1), {"4 ranks are not divisible by tp 2 x cp 1 x pp 3 = 6"}},
               {3,
                sizes_of(1, 1, 1, 1, 3),
                {"the 16 columns of an expert are not divisible by 3 ranks: 16 % 3 = 1",
                 "set it to 1", "parallel.expert_tensor_parallel_size"}},
               {6,
                sizes_of(1, 1, 1, 2, 2),
                {"6 ranks are not divisible by etp 2 x ep 2 x pp 1 = 4",
                 "set it to 1, or use 4 or 8 ranks", "parallel.expert_tensor_parallel_size"}}};
  for (const auto& c : cases) expect_refused(folder, c.ranks, c.sizes, c.has);
}

}  // namespace
}  // namespace slimexx::e2e
