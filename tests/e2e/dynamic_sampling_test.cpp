// Tests runs that drop groups of equal rewards: which groups they keep depends on prompts and seed,
// not on ranks. A resumed run continues after the prompts that were drawn.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "e2e/small_run.h"

namespace slimexx::e2e {
namespace {

class DynamicSampling : public testing::Test {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/qwen3_tied_mqa");
    make_prompts(folder_);
  }
  // The reward is 0 or 1, random by the sample's name: with two samples half of the groups are
  // flat.
  std::vector<std::string> arguments(const std::string& name,
                                     std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"rollout.dynamic_sampling_filter_path=check_reward_nonzero_std",
                               "rollout.n_samples_per_prompt=2", "checkpoint.save_interval=1",
                               "checkpoint.save_hf=" + (folder_ / (name + "/hf")),
                               "debug.save_rollout=" + (folder_ / (name + "/rollouts"))});
    return train_arguments(folder_, folder_ / name, more);
  }
  std::string rollout_file(const std::string& name, int rollout) const {
    return folder_ / (name + "/rollouts/rollout_00000" + std::to_string(rollout) + ".jsonl");
  }
  const Folder folder_;
};

TEST_F(DynamicSampling, FillsRolloutsWithGroupsThatDiffer) {
  const Finished f = run_slimexx(0, arguments("run"));
  ASSERT_EQ(f.status, 0) << f.text();
  const std::vector<Json> rows = read_rows(folder_ / "run/metrics.jsonl");
  ASSERT_EQ(rows.size(), 3u);
  double num_drawn = 0;
  int64_t next_group = 0;
  for (int rollout = 0; rollout < 3; ++rollout) {
    SCOPED_TRACE(rollout);
    const Json& row = rows[static_cast<size_t>(rollout)];
    double dropped = 0;
    for (const auto& [key, value] : row.items())
      if (key.starts_with("rollout/dynamic_filter/drop_zero_std_")) dropped += value.get<double>();
    EXPECT_EQ(number(row, "rollout/num_groups"), 4);
    EXPECT_EQ(number(row, "rollout/zero_std/frac"), 0);
    EXPECT_EQ(number(row, "train/mismatch_tokens"), 0);
    const double drawn = number(row, "rollout/dynamic_filter/num_drawn");
    EXPECT_GE(drawn, 4 + dropped);
    // Dropped groups keep their numbers; no other group gets these.
    std::set<int64_t> groups;
    for (const Json& sample : read_rows(rollout_file("run", rollout)))
      groups.insert(sample["group"].get<int64_t>());
    EXPECT_EQ(groups.size(), 4u);
    EXPECT_GE(*groups.begin(), next_group);
    next_group += static_cast<int64_t>(drawn);
    EXPECT_LT(*groups.rbegin(), next_group);
    num_drawn += drawn;
  }
  EXPECT_GT(num_drawn, 12);
}

TEST_F(DynamicSampling, TakesTheSameOnAnyNumberOfRanks) {
  ASSERT_EQ(run_slimexx(0, arguments("one")).status, 0);
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    const std::string name = "ranks_" + std::to_string(ranks);
    std::vector<std::string> all = arguments(name);
    all.push_back("--thread-ranks=" + std::to_string(ranks));
    const Finished f = run_slimexx(0, all);
    ASSERT_EQ(f.status, 0) << f.text();
    EXPECT_TRUE(read_bytes(rollout_file(name, 0)) == read_bytes(rollout_file("one", 0)));
    for (int rollout = 1; rollout < 3; ++rollout) {  // weights differ by rounding, rewards do not
      const std::vector<Json> own = read_rows(rollout_file(name, rollout)),
                              other = read_rows(rollout_file("one", rollout));
      ASSERT_EQ(own.size(), other.size());
      for (size_t i = 0; i < own.size(); ++i)
        for (const char* key : {"group", "sample", "reward"}) EXPECT_EQ(own[i][key], other[i][key]);
    }
  }
}

TEST_F(DynamicSampling, GoesOnBehindThePromptsThatWereDrawn) {
  ASSERT_EQ(run_slimexx(0, arguments("whole")).status, 0);
  ASSERT_EQ(run_slimexx(0, arguments("halted", {"rollout.num_rollout=2"})).status, 0);
  std::vector<std::string> all = arguments("halted");
  all.push_back("--resume");
  const Finished f = run_slimexx(0, all);
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_TRUE(read_bytes(rollout_file("halted", 2)) == read_bytes(rollout_file("whole", 2)));
  EXPECT_TRUE(read_bytes(folder_ / "halted/hf/model.safetensors") ==
              read_bytes(folder_ / "whole/hf/model.safetensors"));
}

TEST_F(DynamicSampling, DrawsMoreAtOnceWhereAsked) {
  const Finished f = run_slimexx(0, arguments("run", {"rollout.over_sampling_batch_size=16"}));
  ASSERT_EQ(f.status, 0) << f.text();
  ASSERT_EQ(run_slimexx(0, arguments("plain")).status, 0);
  // The first rollout uses the same groups as without the filter.
  EXPECT_TRUE(read_bytes(rollout_file("run", 0)) == read_bytes(rollout_file("plain", 0)));
  for (const Json& row : read_rows(folder_ / "run/metrics.jsonl"))
    EXPECT_EQ(number(row, "rollout/dynamic_filter/num_drawn"), 16);
}

TEST_F(DynamicSampling, EndsWhereNothingIsKept) {
  // No response of 24 tokens happens to equal this label.
  const std::string prompts =
      folder_.put("hard.jsonl", "{\"prompt\": \"1 + 1 =\", \"label\": \"123456789\"}\n");
  std::vector<std::string> all =
      arguments("run", {"reward.rm_type=math", "data.prompt_data=" + prompts});
  all.push_back("--thread-ranks=2");
  const Finished f = run_slimexx(0, all);
  EXPECT_EQ(f.status, 4) << f.text();
  for (const char* text :
       {"rollout 0: the last 64 groups were all dropped (64 zero_std_0.0 in total)",
        "4 of 4 groups are still missing", "rollout.dynamic_sampling_filter_path", "slimexx grade"})
    EXPECT_NE(f.err.find(text), std::string::npos) << text << "\n" << f.text();
}

}  // namespace
}  // namespace slimexx::e2e
