// Tests runs of MoE models with balanced routers: their reports, exports and resumed runs.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"
#include "slimexx/base/file.h"

namespace slimexx::e2e {
namespace {

const std::vector<std::string> kBalanced = {
    "train.moe_router_bias_update_rate=0.01", "train.moe_aux_loss_coeff=0.01",
    "train.moe_z_loss_coeff=0.001", "checkpoint.save_interval=2"};

class RouterRun : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, GetParam());
    make_prompts(folder_);
  }
  std::vector<std::string> arguments(const std::string& name, std::vector<std::string> more) const {
    more.push_back("checkpoint.save_hf=" + (folder_ / (name + "/hf")));
    return train_arguments(folder_, folder_ / name, more);
  }
  void run(const std::string& name, const std::vector<std::string>& more, int ranks = 0) const {
    const Finished f = run_slimexx(ranks, arguments(name, more));
    EXPECT_EQ(f.status, 0) << f.text();
  }
  std::string exported(const std::string& name) const {
    return read_bytes(folder_ / (name + "/hf/model.safetensors"));
  }
  const Folder folder_;
};

// The engine gets the new bias too: the run fails if generation and training disagree by a bit.
TEST_P(RouterRun, BiasesMoveAndAreExported) {
  run("run", kBalanced);
  const Tensors start = read_tensors(folder_ / "model/model.safetensors"),
                end = read_tensors(folder_ / "run/hf/model.safetensors");
  size_t biases = 0;
  for (const auto& [name, values] : start) {
    if (!name.ends_with("e_score_correction_bias")) continue;
    const bool is_mtp = name.starts_with("model.layers.4.");
    EXPECT_EQ(end.at(name).data == values.data, is_mtp) << name;
    biases += is_mtp ? 0 : 1;
  }
  EXPECT_GT(biases, 1u);
  for (const char* file : {"metrics", "train_steps"}) {
    const std::string prefix = file == std::string("metrics") ? "train/" : "train_step/";
    const Json row = read_rows(folder_ / ("run/" + std::string(file) + ".jsonl")).back();
    EXPECT_GT(number(row, prefix + "moe_aux_loss"), 0.5);
    EXPECT_GT(number(row, prefix + "moe_z_loss"), 0);
    EXPECT_GE(number(row, prefix + "moe_load_max"), number(row, prefix + "moe_load_max/layer_3"));
    EXPECT_LE(number(row, prefix + "moe_load_min"), number(row, prefix + "moe_load_min/layer_3"));
    EXPECT_GT(number(row, prefix + "moe_router_entropy"), 0);
    EXPECT_GT(number(row, prefix + "moe_router_entropy/layer_3"), 0);
  }
}

TEST_P(RouterRun, GoesOnFromACheckpointToTheByte) {
  run("whole", kBalanced);
  std::vector<std::string> shorter = kBalanced;
  shorter.push_back("rollout.num_rollout=2");
  run("halted", shorter);
  ASSERT_FALSE(exported("halted") == exported("whole"));
  std::vector<std::string> all = arguments("halted", kBalanced);
  all.push_back("--resume");
  const Finished f = run_slimexx(0, all);
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_TRUE(exported("halted") == exported("whole"));
  // Converting the checkpoint gives the same tensors.
  const Finished converted =
      run_slimexx(0, {"convert-hf", "--to", "hf", "--load", folder_ / "halted/checkpoints",
                      "--save", folder_ / "converted", "--verify"});
  ASSERT_EQ(converted.status, 0) << converted.text();
  EXPECT_TRUE(read_bytes(folder_ / "converted/model.safetensors") == exported("whole"));
}

TEST_P(RouterRun, LoadsAndBiasesOfTwoRanksAreThoseOfOne) {
  if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  std::vector<std::string> settings = kBalanced;
  settings.push_back("rollout.num_rollout=1");
  run("one", settings);
  run("two", settings, 2);
  const Json one = read_rows(folder_ / "one/train_steps.jsonl")[0],
             two = read_rows(folder_ / "two/train_steps.jsonl")[0];
  size_t compared = 0;
  for (const auto& [key, value] : one.items()) {
    if (!key.starts_with("train_step/moe_")) continue;
    EXPECT_EQ(two.at(key), value) << key;
    ++compared;
  }
  EXPECT_GT(compared, 8u);
  const Tensors first = read_tensors(folder_ / "one/hf/model.safetensors"),
                second = read_tensors(folder_ / "two/hf/model.safetensors");
  for (const auto& [name, values] : first) {
    if (!name.ends_with("e_score_correction_bias")) continue;
    EXPECT_EQ(second.at(name).data, values.data) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RouterRun,
                         testing::Values("oracle/glm4_moe", "oracle/deepseek_v3"),
                         [](const auto& instance) { return instance.param.substr(7); });

// Random weights of one range for all tensors would route nearly every token of a deep model to the
// same experts; the random weights for timing recipes do not.
TEST(RouterOfRandomWeights, KeepsExpertsEven) {
  const Folder folder;
  const std::string model = make_checkpoint(
      folder, "oracle/qwen3_moe",
      R"({"hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, "head_dim": 64,
          "num_local_experts": 16, "initializer_range": 0.06})");
  std::vector<int> tokens(512);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int>(i * i * 2654435761u / 65536 % 256);
  const std::string dump = folder.put(
      "dump.jsonl",
      Json{{"group", 0}, {"sample", 0}, {"tokens", tokens}, {"response_length", 500}, {"reward", 1}}
          .dump());
  const auto greatest_load = [&](const std::string& random_weights) {
    const std::string run_dir = folder / random_weights;
    const Finished f = run_slimexx(
        0, train_arguments(folder, run_dir,
                           {"debug.random_weights=" + random_weights, "debug.load_rollout=" + dump,
                            "rollout.num_rollout=1", "train.global_batch_size=1",
                            "rl.rewards_normalization=false"}));
    EXPECT_EQ(f.status, 0) << f.text();
    return number(read_rows(run_dir + "/metrics.jsonl").back(), "train/moe_load_max");
  };
  EXPECT_LT(greatest_load("true"), 2.5);
  EXPECT_GT(greatest_load("false"),
            5);  // the maximum is 8: all tokens go to the same two of 16 experts
}

TEST(RouterSettings, AreRefusedWhereTheModelHasNone) {
  const Folder folder;
  make_prompts(folder);
  make_checkpoint(folder, "models/llama3_scaled_tied_biased");
  for (const char* key :
       {"moe_router_bias_update_rate", "moe_aux_loss_coeff", "moe_z_loss_coeff"}) {
    const Finished f = run_slimexx(
        0, train_arguments(folder, folder / "run", {std::string("train.") + key + "=0.001"}));
    EXPECT_EQ(f.status, 2) << f.text();
    EXPECT_NE(f.err.find(key), std::string::npos) << f.text();
    EXPECT_FALSE(path_exists(folder / "run"));
  }
  // The router of this model has no bias.
  make_checkpoint(folder, "oracle/qwen3_moe", "{}", "softmax");
  const Finished f = run_slimexx(0, train_arguments(folder, folder / "run",
                                                    {"model.hf_checkpoint=" + (folder / "softmax"),
                                                     "train.moe_router_bias_update_rate=0.001"}));
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("correction bias"), std::string::npos) << f.text();
}

}  // namespace
}  // namespace slimexx::e2e
