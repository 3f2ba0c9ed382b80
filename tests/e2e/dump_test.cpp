// Training on a dump: the steps of a rollout are those that the configuration asks for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"

namespace slimexx::e2e {
namespace {

class Dump : public testing::Test {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/llama");
    make_prompts(folder_);
    const Finished f = run_slimexx(
        0, train_arguments(folder_, folder_ / "first",
                           {"rollout.num_rollout=1", "debug.save_rollout=" + (folder_ / "made")}));
    ASSERT_EQ(f.status, 0) << f.text();  // 16 samples
  }
  Finished train(const std::string& run_dir, std::vector<std::string> settings) const {
    settings.push_back("debug.load_rollout=" + (folder_ / "made"));
    settings.push_back("checkpoint.save_hf=" + (folder_ / (run_dir + "/hf")));
    return run_slimexx(0, train_arguments(folder_, folder_ / run_dir, settings));
  }
  const Folder folder_;
};

TEST_F(Dump, IsCutIntoTheStepsThatAreSet) {
  for (const int steps : {2, 4}) {
    SCOPED_TRACE(steps);
    const std::string by_steps = "steps_" + std::to_string(steps);
    const std::string by_batch = "batch_" + std::to_string(steps);
    Finished f = train(by_steps, {"train.num_steps_per_rollout=" + std::to_string(steps)});
    ASSERT_EQ(f.status, 0) << f.text();
    const Json row = read_rows(folder_ / (by_steps + "/metrics.jsonl")).at(0);
    EXPECT_EQ(number(row, "train/num_steps"), steps);
    EXPECT_EQ(number(row, "train/step"), steps);
    EXPECT_EQ(number(row, "train/global_batch_size"), 16 / steps);
    f = train(by_batch, {"train.global_batch_size=" + std::to_string(16 / steps)});
    ASSERT_EQ(f.status, 0) << f.text();
    EXPECT_EQ(read_bytes(folder_ / (by_steps + "/hf/model.safetensors")),
              read_bytes(folder_ / (by_batch + "/hf/model.safetensors")));
  }
}

TEST_F(Dump, OfAnotherSizeIsRefused) {
  Finished f = train("thirds", {"train.num_steps_per_rollout=3"});
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("16 samples, not num_steps_per_rollout 3"), std::string::npos) << f.text();
  f = train("both", {"train.num_steps_per_rollout=2", "train.global_batch_size=4"});
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("num_steps_per_rollout 2 * global_batch_size 4"), std::string::npos)
      << f.text();
}

}  // namespace
}  // namespace slimexx::e2e
