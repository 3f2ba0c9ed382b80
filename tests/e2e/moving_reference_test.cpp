// Tests a reference that is replaced by the policy every ref_update_interval rollouts, also in a
// resumed run.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/small_run.h"
#include "slimexx/base/file.h"

namespace slimexx::e2e {
namespace {

struct Case {
  std::string name, model;
  int ranks;
  std::vector<std::string> settings;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class MovingReference : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().ranks > 0)
      if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
    make_checkpoint(folder_, GetParam().model);
    make_prompts(folder_);
  }
  // The rows of a run in folder `name`.
  std::vector<Json> train(const std::string& name, int ranks, const std::vector<std::string>& more,
                          bool resumes = false) const {
    std::vector<std::string> settings = {"model.ref_load=" + (folder_ / "model"),
                                         "rl.use_kl_loss=true", "rl.kl_loss_type=k1",
                                         "rl.log_ref_kl_interval=1", "optimizer.lr=0.01"};
    settings.insert(settings.end(), more.begin(), more.end());
    for (const std::string& setting : GetParam().settings)
      if (ranks == GetParam().ranks || setting.starts_with("train.")) settings.push_back(setting);
    std::vector<std::string> arguments = train_arguments(folder_, folder_ / name, settings);
    if (resumes) arguments.emplace_back("--resume");
    const Finished f = run_slimexx(ranks, arguments);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_rows(folder_ / (name + "/metrics.jsonl"));
  }
  const Folder folder_;
};

// Just after the update the KL is 0 to the bit. With a KL coefficient the reference's weights have
// their own memory; without a coefficient they are copied in for each use.
TEST_P(MovingReference, BecomesThePolicy) {
  for (const std::string coefficient : {"0.1", "0"}) {
    const auto run = [&](const std::string& interval) {
      return train("run_" + coefficient + "_" + interval, GetParam().ranks,
                   {"rl.kl_loss_coef=" + coefficient, "rollout.num_rollout=3",
                    "rl.ref_update_interval=" + interval});
    };
    for (const std::string interval : {"1", "2"}) {
      const auto rows = run(interval);
      ASSERT_EQ(rows.size(), 3u);
      EXPECT_EQ(number(rows[0], "train/kl_loss"), 0);
      EXPECT_EQ(number(rows[1], "train/kl_loss") == 0, interval == "1");
      EXPECT_EQ(number(rows[2], "train/kl_loss"), 0);
    }
  }
}

// Stops between two updates. Resumes to the bit on the same number of ranks, and nearly so on one
// rank.
TEST_P(MovingReference, ResumesWhereItWas) {
  const std::vector<std::string> all = {"rl.kl_loss_coef=0.1", "rl.ref_update_interval=2",
                                        "checkpoint.save_interval=3"};
  const auto with = [&](const std::string& name, const std::string& rollouts) {
    auto settings = all;
    settings.push_back("rollout.num_rollout=" + rollouts);
    settings.push_back("checkpoint.save_hf=" + (folder_ / (name + "_hf")));
    return settings;
  };
  const auto whole = train("whole", GetParam().ranks, with("whole", "4"));
  train("stopped", GetParam().ranks, with("stopped", "3"));
  const auto resumed = train("stopped", GetParam().ranks, with("stopped", "4"), true);
  ASSERT_EQ(whole.size(), 4u);
  ASSERT_EQ(resumed.size(), 4u);
  EXPECT_NE(number(whole[3], "train/kl_loss"), 0);
  EXPECT_EQ(number(resumed[3], "train/kl_loss"), number(whole[3], "train/kl_loss"));
  EXPECT_EQ(read_text_file(folder_ / "stopped_hf/model.safetensors") ==
                read_text_file(folder_ / "whole_hf/model.safetensors"),
            true);
  train("elsewhere", GetParam().ranks, with("elsewhere", "3"));
  const auto elsewhere = train("elsewhere", 0, with("elsewhere", "4"), true);
  ASSERT_EQ(elsewhere.size(), 4u);
  EXPECT_NEAR(number(elsewhere[3], "train/kl_loss"), number(whole[3], "train/kl_loss"),
              1e-3 * std::abs(number(whole[3], "train/kl_loss")));
}

TEST_P(MovingReference, OfAnotherArchitectureIsRefused) {
  make_checkpoint(folder_, GetParam().model, R"({"num_hidden_layers": 3})", "other");
  expect_refused(folder_, 1,
                 {"model.ref_load=" + (folder_ / "other"), "rl.use_kl_loss=true",
                  "rl.kl_loss_coef=0.1", "rl.ref_update_interval=2"},
                 {"rl.ref_update_interval is set", "architecture"});
}

INSTANTIATE_TEST_SUITE_P(
    Runs, MovingReference,
    testing::Values(Case{"one_rank", "models/llama", 0, {}},
                    Case{"two_ranks", "models/llama", 2, {}},
                    Case{"mtp_layers",
                         "oracle/glm4_moe",
                         0,
                         {"train.enable_mtp_training=true", "train.mtp_num_layers=1"}},
                    // The last stage has a copy of the embedding, and the reference does not.
                    Case{"pp2_mtp_layers",
                         "oracle/glm4_moe",
                         2,
                         {"train.enable_mtp_training=true", "train.mtp_num_layers=1",
                          "parallel.pipeline_model_parallel_size=2"}},
                    Case{"tp2_ep2_experts",
                         "oracle/glm4_moe",
                         2,
                         {"parallel.tensor_model_parallel_size=2",
                          "parallel.expert_model_parallel_size=2",
                          "parallel.expert_tensor_parallel_size=1",
                          "rollout.rollout_num_gpus_per_engine=2", "rollout.ep_size=2"}}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
