#include "rl/generation/sample_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "rl/tiny_rollout.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rl {
namespace {

class GeneratedSource : public testing::Test {
 protected:
  GeneratedSource()
      : path_(std::filesystem::temp_directory_path() /
              ("slimexx_source_" + std::to_string(getpid()) + ".jsonl")) {
    std::ofstream file(path_);
    for (int i = 0; i < 5; ++i) file << "{\"tokens\": [" << 3 + i << ", 5], \"label\": \"\"}\n";
    file.close();
    config_.data.prompt_data = path_.string();
    config_.data.rollout_shuffle = true;
    config_.rollout.n_samples_per_prompt = 2;
    config_.rollout.rollout_max_response_len = 12;
  }
  ~GeneratedSource() override { std::filesystem::remove(path_); }

  // Calls `use` with a source of `batch_size` groups per rollout, restored from `state`.
  void with_source(int64_t batch_size, const Json& state,
                   const std::function<void(SampleSource&)>& use) {
    config_.rollout.rollout_batch_size = batch_size;
    dist::run_thread_ranks(1, [&](dist::Collective& communicator) {
      TinyRollout tiny(communicator);
      SeedGrader grader;
      const auto source =
          make_generated_source(config_,
                                std::make_shared<const data::PromptSet>(data::PromptSet::load(
                                    prompt_options(config_), nullptr, nullptr)),
                                tiny.generator, grader, {2, 7});
      if (!state.is_null()) source->restore(state);
      use(*source);
    });
  }
  // Number of rollouts of the whole run, if `num_done` rollouts led to `state`.
  int64_t rollouts_of(int64_t batch_size, const Json& state, int64_t num_done) {
    int64_t num_rollouts = 0;
    with_source(batch_size, state,
                [&](SampleSource& source) { num_rollouts = source.num_rollouts(num_done); });
    return num_rollouts;
  }

  // Draws `count` rollouts of `batch_size` groups from rollout `first` on, restored from `state`.
  // Stores the responses in `by_group`, by group and sample.
  Json draw(int64_t first, int64_t count, int64_t batch_size, const Json& state,
            std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>>& by_group) {
    Json after;
    with_source(batch_size, state, [&](SampleSource& source) {
      for (int64_t rollout = first; rollout < first + count; ++rollout) {
        for (const Sample& s : source.next(rollout, 0).samples) {
          EXPECT_EQ(s.rollout, rollout);
          EXPECT_TRUE(by_group.emplace(std::pair(s.group, s.sample), s.tokens).second)
              << "group " << s.group << " was drawn before";
        }
      }
      after = source.state();
    });
    return after;
  }

  std::filesystem::path path_;
  RunConfig config_;
};

// A run is stopped after one rollout and continues with smaller rollouts across the end of an
// epoch. Its saved state has the form of old checkpoints, in which groups had no numbers.
TEST_F(GeneratedSource, AResumedRunNumbersItsGroupsOn) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> unbroken, resumed;
  draw(0, 3, 3, nullptr, unbroken);
  const Json state = draw(0, 1, 3, nullptr, resumed);
  std::vector<std::string> keys;
  for (const auto& [key, value] : state.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"epoch", "offset", "shuffle", "seed", "num_rows",
                                            "content_hash"}));
  draw(1, 3, 2, state, resumed);
  ASSERT_EQ(unbroken.size(), 18u);
  EXPECT_EQ(unbroken.begin()->first.first, 0);
  EXPECT_EQ(unbroken.rbegin()->first.first, 8);
  EXPECT_TRUE(resumed == unbroken);
}

// The run has 20 rows in 4 epochs. A resumed run has as many rollouts left as the remaining rows
// fill.
TEST_F(GeneratedSource, EpochsAreRowsOfAnyBatch) {
  config_.rollout.num_epoch = 4;
  EXPECT_EQ(rollouts_of(2, nullptr, 0), 10);
  EXPECT_EQ(rollouts_of(3, nullptr, 0), 6);
  EXPECT_EQ(rollouts_of(50, nullptr, 0), 1);
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> ignored;
  const Json state = draw(0, 3, 2, nullptr, ignored);
  for (const auto& [batch_size, num_rollouts] :
       {std::pair{1, 3 + 14}, {2, 3 + 7}, {3, 3 + 4}, {14, 3 + 1}, {15, 3}})
    EXPECT_EQ(rollouts_of(batch_size, state, 3), num_rollouts) << batch_size;
  config_.rollout.num_epoch = 1;
  EXPECT_EQ(rollouts_of(2, state, 3), 3) << "it is done";
  config_.rollout.num_rollout = 9;
  EXPECT_EQ(rollouts_of(2, state, 3), 9);
}

// Extra groups that a filter draws do not shorten the run.
TEST_F(GeneratedSource, EpochsUnderAFilterAreThoseOfBatches) {
  config_.rollout.num_epoch = 4;
  config_.rollout.dynamic_sampling_filter_path = "check_reward_nonzero_std";
  Json state;
  with_source(2, nullptr, [&](SampleSource& source) {
    int64_t drawn = 0, kept = 0;
    for (int64_t rollout = 0; rollout < 3; ++rollout) {
      const DrawnSamples samples = source.next(rollout, 0);
      int64_t tokens = 0, longest = 0;
      for (const Sample& s : samples.samples)
        tokens += s.response_length, longest = std::max(longest, s.response_length);
      EXPECT_GE(samples.longest_response, longest);
      if (samples.num_drawn_groups == 2) {
        EXPECT_EQ(samples.num_generated_tokens, tokens);
      } else {
        EXPECT_GT(samples.num_generated_tokens, tokens);
      }
      drawn += samples.num_drawn_groups, kept += 2;
    }
    EXPECT_GT(drawn, kept) << "nothing was dropped";
    state = source.state();
    EXPECT_EQ(state.at("asked_rows"), 6);
  });
  EXPECT_EQ(rollouts_of(2, state, 3), 10);
  EXPECT_EQ(rollouts_of(4, state, 3), 3 + 3);
  Json of_before = state;
  of_before.erase("asked_rows");
  EXPECT_EQ(rollouts_of(2, of_before, 3), 10);
  state["asked_rows"] = 1000;
  EXPECT_THROW(rollouts_of(2, state, 3), Error);
  config_.rollout.dynamic_sampling_filter_path.clear();
  state["asked_rows"] = 6;
  EXPECT_EQ(rollouts_of(2, state, 3), 10) << "without the filter from here on";
}

}  // namespace
}  // namespace slimexx::rl
