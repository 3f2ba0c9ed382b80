// Tests the numeric contract (docs/numerics.md) through the whole program: the log-prob of a token
// in training has the same bits as in generation, no matter how the engine ran.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"

namespace slimexx::e2e {
namespace {

struct Setting {
  const char* name;
  std::vector<std::string> settings;
  bool preempts = false;
};

// The smallest caches hold the longest prompt with its response, but far fewer than 16 samples.
const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> all = {
      {"small_pages", {"rollout.page_size=1", "rollout.max_total_tokens=130"}, true},
      {"chunked_without_sharing",
       {"rollout.page_size=16", "rollout.max_total_tokens=176", "rollout.chunked_prefill_size=7",
        "rollout.disable_radix_cache=true", "rollout.rollout_temperature=0.7"},
       true},
      {"truncated_sampling_two_steps",
       {"rollout.page_size=16", "rollout.max_total_tokens=128", "rollout.chunked_prefill_size=7",
        "rollout.rollout_temperature=0.7", "rollout.rollout_top_p=0.9", "rollout.rollout_top_k=20",
        "train.num_steps_per_rollout=2", "numerics.recompute_old_log_probs=true"},
       true},
      {"roomy",
       {"rollout.page_size=16", "train.num_steps_per_rollout=2",
        "train.recompute_granularity=full"}},
      {"single_file",
       {"rollout.page_size=1", "rollout.max_running_requests=1",
        "rollout.disable_radix_cache=true"}},
  };
  return all;
}

class Exactness : public testing::TestWithParam<Family> {};

void expect_exact_rows(const std::string& run_dir, bool preempts) {
  const auto rows = read_rows(run_dir + "/metrics.jsonl");
  ASSERT_EQ(rows.size(), 3u);
  double preemptions = 0;
  for (const Json& row : rows) {
    EXPECT_EQ(number(row, "train/train_rollout_logprob_abs_diff"), 0) << row.dump();
    EXPECT_EQ(number(row, "train/train_rollout_logprob_max_diff"), 0);
    EXPECT_EQ(number(row, "train/mismatch_tokens"), 0);
    EXPECT_GT(number(row, "rollout/num_tokens"), 16) << "too little was generated to compare";
    EXPECT_GT(number(row, "train/grad_norm"), 0);
    preemptions += number(row, "perf/preemptions");
  }
  if (preempts) {
    EXPECT_GT(preemptions, 0) << "the cache was not small enough";
  } else {
    EXPECT_EQ(preemptions, 0);
  }
}

TEST_P(Exactness, OfEveryTokenWhateverTheEngineDoes) {
  const Folder folder;
  make_checkpoint(folder, GetParam().model);
  make_prompts(folder);
  for (const Setting& setting : all_settings()) {
    SCOPED_TRACE(setting.name);
    const std::string run_dir = folder / setting.name;
    const Finished f = run_slimexx(0, train_arguments(folder, run_dir, setting.settings));
    ASSERT_EQ(f.status, 0) << f.text();
    EXPECT_NE(f.err.find("tokens compared bit for bit"), std::string::npos) << f.err;
    expect_exact_rows(run_dir, setting.preempts);
  }
}

// With four optimizer steps per rollout, only the first step compares log-probs in every rollout;
// the other steps do so every check_interval rollouts.
TEST(ExactnessOfSteps, LaterOnesAreComparedAtIntervals) {
  const Folder folder;
  make_checkpoint(folder, "models/llama");
  make_prompts(folder);
  const Finished f = run_slimexx(
      0, train_arguments(folder, folder / "run",
                         {"train.num_steps_per_rollout=4", "numerics.check_interval=2"}));
  ASSERT_EQ(f.status, 0) << f.text();
  const auto rows = read_rows(folder / "run/metrics.jsonl");
  ASSERT_EQ(rows.size(), 3u);
  for (const size_t i : {0u, 1u, 2u}) {
    const double compared = number(rows[i], "train/compared_tokens");
    const double all = number(rows[i], "rollout/num_tokens");
    if (i == 1) {
      EXPECT_LT(compared, all);
    } else {
      EXPECT_EQ(compared, all) << "rollout " << i;
    }
    EXPECT_GT(compared, 0);
    EXPECT_EQ(number(rows[i], "train/mismatch_tokens"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Exactness, testing::ValuesIn(families()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
