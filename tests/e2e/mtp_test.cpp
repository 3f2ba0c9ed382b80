// Tests runs that train an MTP layer with the policy: their exports and resumed runs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"
#include "slimexx/base/file.h"

namespace slimexx::e2e {
namespace {

constexpr const char* kOn = "train.enable_mtp_training=true";
constexpr const char* kOneLayer = "train.mtp_num_layers=1";
constexpr const char* kLayer = "model.layers.4.";  // after the model's four layers

class MtpRun : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, GetParam());
    make_prompts(folder_);
  }
  std::vector<std::string> arguments(const std::string& name, std::vector<std::string> more) const {
    more.push_back("checkpoint.save_hf=" + (folder_ / (name + "/hf")));
    return train_arguments(folder_, folder_ / name, more);
  }
  Tensors run(const std::string& name, const std::vector<std::string>& more) const {
    const Finished f = run_slimexx(0, arguments(name, more));
    EXPECT_EQ(f.status, 0) << f.text();
    return read_tensors(folder_ / (name + "/hf/model.safetensors"));
  }
  const Folder folder_;
};

TEST_P(MtpRun, ChangesTheLayerOnlyWhereItIsTrained) {
  const Tensors start = read_tensors(folder_ / "model/model.safetensors");
  // Clipping uses the norm of all gradients. Without clipping the policy gets bit-identical
  // updates.
  const Tensors with = run("with", {kOn, kOneLayer, "optimizer.clip_grad=0"});
  const Tensors without = run("without", {kOneLayer, "optimizer.clip_grad=0"});
  ASSERT_EQ(with.size(), start.size());
  ASSERT_EQ(without.size(), start.size());
  size_t trained = 0;
  for (const auto& [name, values] : start) {
    if (!name.starts_with(kLayer)) {
      EXPECT_EQ(with.at(name).data, without.at(name).data) << name;
      continue;
    }
    EXPECT_EQ(without.at(name).data, values.data) << name;
    const bool is_bias_of_router = name.ends_with("e_score_correction_bias");
    EXPECT_EQ(with.at(name).data == values.data, is_bias_of_router) << name;
    ++trained;
  }
  EXPECT_GT(trained, 10u);
  const auto rows = read_rows(folder_ / "with/metrics.jsonl");
  ASSERT_EQ(rows.size(), 3u);
  for (const Json& row : rows)
    EXPECT_EQ(number(row, "train/mtp_loss"), number(row, "train/mtp_1_loss"));
  EXPECT_LT(number(rows.back(), "train/mtp_loss"), number(rows.front(), "train/mtp_loss"));
  EXPECT_EQ(number(read_rows(folder_ / "with/train_steps.jsonl").front(), "train_step/mtp_loss"),
            number(rows.front(), "train/mtp_loss"));
  EXPECT_FALSE(read_rows(folder_ / "without/metrics.jsonl").front().contains("train/mtp_loss"));
}

TEST_P(MtpRun, GoesOnFromACheckpointToTheByte) {
  const std::vector<std::string> settings = {kOn, kOneLayer, "checkpoint.save_interval=2"};
  run("whole", settings);
  std::vector<std::string> shorter = settings;
  shorter.push_back("rollout.num_rollout=2");
  run("halted", shorter);
  const auto resume = [&](std::vector<std::string> more) {
    more.push_back("checkpoint.save_interval=2");
    std::vector<std::string> all = arguments("halted", more);
    all.push_back("--resume");
    return run_slimexx(0, all);
  };
  // The checkpoint has the layer's masters and moments: its training cannot be turned off now.
  const Finished refused = resume({kOneLayer});
  EXPECT_EQ(refused.status, 2) << refused.text();
  EXPECT_NE(refused.err.find("train.enable_mtp_training"), std::string::npos) << refused.text();
  const Finished f = resume({kOn, kOneLayer});
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_TRUE(read_bytes(folder_ / "halted/hf/model.safetensors") ==
              read_bytes(folder_ / "whole/hf/model.safetensors"));
  // Converting the checkpoint gives the same tensors.
  const Finished converted =
      run_slimexx(0, {"convert-hf", "--to", "hf", "--load", folder_ / "halted/checkpoints",
                      "--save", folder_ / "converted", "--verify"});
  ASSERT_EQ(converted.status, 0) << converted.text();
  EXPECT_TRUE(read_bytes(folder_ / "converted/model.safetensors") ==
              read_bytes(folder_ / "whole/hf/model.safetensors"));
}

// Each rank has a part of the samples, and all divide by the number of labels of the whole step.
TEST_P(MtpRun, GradientsOfTwoRanksAreThoseOfOne) {
  if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr double kRounding = 1e-5;  // f32 sums in another order
  std::vector<Tensors> gradients;
  std::vector<double> losses;
  for (const int num_ranks : {0, 2}) {
    const std::string name = "ranks_" + std::to_string(num_ranks);
    const Finished f = run_slimexx(
        num_ranks, arguments(name, {kOn, kOneLayer, "rollout.num_rollout=1",
                                    "debug.dump_gradients=" + (folder_ / (name + "/dump"))}));
    ASSERT_EQ(f.status, 0) << f.text();
    gradients.push_back(read_tensors(folder_ / (name + "/dump/gradients.safetensors")));
    losses.push_back(number(read_rows(folder_ / (name + "/metrics.jsonl"))[0], "train/mtp_loss"));
  }
  EXPECT_NEAR(losses[1], losses[0], kRounding);
  ASSERT_EQ(gradients[1].size(), gradients[0].size());
  size_t compared = 0;
  for (const auto& [name, values] : gradients[0]) {
    if (!name.starts_with(kLayer)) continue;
    const Difference d = compare(gradients[1].at(name).data, values.data);
    EXPECT_LE(d.relative, kRounding) << name << ": norm " << d.norm;
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

TEST_P(MtpRun, MoreLayersThanTheModelHasAreRefused) {
  const Finished f = run_slimexx(0, arguments("more", {kOn, "train.mtp_num_layers=2"}));
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("train.mtp_num_layers is 2"), std::string::npos) << f.text();
  EXPECT_FALSE(path_exists(folder_ / "more"));
}

INSTANTIATE_TEST_SUITE_P(Families, MtpRun,
                         testing::Values("oracle/glm4_moe", "oracle/glm4_moe_lite",
                                         "oracle/deepseek_v3"),
                         [](const auto& instance) { return instance.param.substr(7); });

}  // namespace
}  // namespace slimexx::e2e
