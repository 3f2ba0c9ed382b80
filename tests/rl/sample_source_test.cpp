#include "rl/sample_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "rl/tiny_rollout.h"
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

  // `count` rollouts of `batch_size` groups from rollout `first` on, after `state`; what was
  // generated goes into `by_group`, by group and sample.
  Json draw(int64_t first, int64_t count, int64_t batch_size, const Json& state,
            std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>>& by_group) {
    config_.rollout.rollout_batch_size = batch_size;
    Json after;
    dist::run_thread_ranks(1, [&](dist::Collective& communicator) {
      TinyRollout tiny(communicator);
      SeedGrader grader;
      const auto source =
          make_generated_source(config_,
                                std::make_shared<const data::PromptSet>(data::PromptSet::load(
                                    prompt_options(config_), nullptr, nullptr)),
                                tiny.generator, grader, {2, 7});
      if (!state.is_null()) source->restore(state);
      for (int64_t rollout = first; rollout < first + count; ++rollout) {
        for (const Sample& s : source->next(rollout, 0).samples) {
          EXPECT_EQ(s.rollout, rollout);
          EXPECT_TRUE(by_group.emplace(std::pair(s.group, s.sample), s.tokens).second)
              << "group " << s.group << " was drawn before";
        }
      }
      after = source->state();
    });
    return after;
  }

  std::filesystem::path path_;
  RunConfig config_;
};

// A run that is stopped after one rollout and goes on with smaller ones, over the end of an epoch.
// Its state is that of checkpoints of before groups had numbers.
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

}  // namespace
}  // namespace slimexx::rl
