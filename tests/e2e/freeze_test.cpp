// Tests runs that train only some parameters: their exports and resumed runs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"
#include "slimexx/base/file.h"

namespace slimexx::e2e {
namespace {

const std::string kFrozen = "train.freeze_params_name_list=[embed_tokens, \"layers[.]0[.].*norm\"]";

bool is_frozen(const std::string& name) {
  return name.find("embed_tokens") != std::string::npos ||
         (name.starts_with("model.layers.0.") && name.find("norm") != std::string::npos);
}

class FreezeRun : public testing::Test {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/qwen3_tied_mqa");
    make_prompts(folder_);
  }
  std::vector<std::string> arguments(const std::string& name, std::vector<std::string> more) const {
    for (const char* setting : {"optimizer.weight_decay=0.1", "checkpoint.save_interval=2"})
      more.emplace_back(setting);
    more.push_back("checkpoint.save_hf=" + (folder_ / (name + "/hf")));
    return train_arguments(folder_, folder_ / name, more);
  }
  Finished run(const std::string& name, const std::vector<std::string>& more, int ranks = 0) const {
    const Finished f = run_slimexx(ranks, arguments(name, more));
    EXPECT_EQ(f.status, 0) << f.text();
    return f;
  }
  Tensors exported(const std::string& name) const {
    return read_tensors(folder_ / (name + "/hf/model.safetensors"));
  }
  // Parameters that match the patterns are as in `start`; all others have changed.
  static void expect_frozen(const Tensors& trained, const Tensors& start) {
    size_t num_frozen = 0;
    ASSERT_EQ(trained.size(), start.size());
    for (const auto& [name, values] : start) {
      EXPECT_EQ(trained.at(name).data == values.data, is_frozen(name)) << name;
      num_frozen += is_frozen(name) ? 1 : 0;
    }
    EXPECT_GT(num_frozen, 3u);
  }
  const Folder folder_;
};

TEST_F(FreezeRun, ExportsWhatItDidNotTrainAsItWas) {
  const Finished f = run("run", {kFrozen});
  EXPECT_NE(f.text().find("  frozen    "), std::string::npos) << f.text();
  expect_frozen(exported("run"), read_tensors(folder_ / "model/model.safetensors"));
}

TEST_F(FreezeRun, GoesOnFromACheckpointToTheByte) {
  run("whole", {kFrozen});
  run("halted", {kFrozen, "rollout.num_rollout=2"});
  const auto resume = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = arguments("halted", more);
    all.push_back("--resume");
    return run_slimexx(0, all);
  };
  const Finished refused = resume({});
  EXPECT_EQ(refused.status, 2) << refused.text();
  EXPECT_NE(refused.err.find("train.freeze_params_name_list"), std::string::npos) << refused.text();
  const Finished f = resume({kFrozen});
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_TRUE(read_bytes(folder_ / "halted/hf/model.safetensors") ==
              read_bytes(folder_ / "whole/hf/model.safetensors"));
}

// If a run started from other weights than those of the folder, its frozen weights exist only in
// its checkpoint.
TEST_F(FreezeRun, FromOtherWeightsGoesOnToTheByte) {
  make_checkpoint(folder_, "models/qwen3_tied_mqa", "{}", "other", 6);
  const Finished converted = run_slimexx(
      0, {"convert-hf", "--hf-checkpoint", folder_ / "other", "--save", folder_ / "sharded"});
  ASSERT_EQ(converted.status, 0) << converted.text();
  const std::string load = "model.load=" + (folder_ / "sharded");
  run("whole", {kFrozen, load});
  expect_frozen(exported("whole"), read_tensors(folder_ / "other/model.safetensors"));
  run("halted", {kFrozen, load, "rollout.num_rollout=2"});
  std::vector<std::string> again = arguments("halted", {kFrozen});
  again.push_back("--resume");
  const Finished f = run_slimexx(0, again);
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_TRUE(read_bytes(folder_ / "halted/hf/model.safetensors") ==
              read_bytes(folder_ / "whole/hf/model.safetensors"));
}

TEST_F(FreezeRun, PatternsThatNameNothingAreRefused) {
  expect_refused(folder_, 1, {"train.freeze_params_name_list=[lm_hed]"},
                 {"\"lm_hed\" matches no tensor name", "model.embed_tokens.weight"});
  expect_refused(folder_, 1,
                 {"train.freeze_params_name_list=[mlp]", "train.only_train_params_name_list=[mlp]"},
                 {"are both set"});
  EXPECT_FALSE(path_exists(folder_ / "run"));
}

}  // namespace
}  // namespace slimexx::e2e
