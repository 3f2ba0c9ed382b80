#include "rl/training/learning_watch.h"

#include <gtest/gtest.h>

#include "slimexx/reward/rewards.h"

namespace slimexx::rl {
namespace {

using Names = std::vector<std::string>;

Names names_of(const LearningSigns& signs) {
  Names names;
  for (const LearningFault& fault : find_learning_faults(signs)) names.push_back(fault.name);
  return names;
}

LearningSigns healthy() {
  LearningSigns signs;
  signs.num_samples = signs.num_graded = 8;
  signs.num_groups = 2;
  signs.num_flat_groups = 1;
  signs.has_advantage = true;
  signs.num_trained_tokens = 80;
  signs.num_truncated = 7;
  signs.num_without_answer = 7;
  signs.entropy = 0.5;
  return signs;
}

TEST(LearningWatch, OneSignIsOneFault) {
  EXPECT_EQ(names_of(healthy()), Names{});
  EXPECT_EQ(names_of(LearningSigns{}), Names{});

  LearningSigns unchanged = healthy();
  unchanged.fp8_changed = 1e-9;
  EXPECT_EQ(names_of(unchanged), Names{});
  unchanged.fp8_changed = 0;
  EXPECT_EQ(names_of(unchanged), Names{"fp8_unchanged"});

  LearningSigns flat = healthy();
  flat.num_flat_groups = 2;
  EXPECT_EQ(names_of(flat), Names{}) << "a penalty gives an advantage all the same";
  flat.has_advantage = false;
  EXPECT_EQ(names_of(flat), Names{"no_advantage"});

  LearningSigns silent = healthy();
  silent.num_without_answer = 8;
  EXPECT_EQ(names_of(silent), Names{"no_answer"});
  silent.num_graded = 0;
  silent.num_without_answer = 0;
  EXPECT_EQ(names_of(silent), Names{});

  LearningSigns cut = healthy();
  cut.num_truncated = 8;
  EXPECT_EQ(names_of(cut), Names{"all_truncated"});

  LearningSigns sure = healthy();
  sure.entropy = 0;
  EXPECT_EQ(names_of(sure), Names{"no_entropy"});
  sure.num_trained_tokens = 0;
  EXPECT_EQ(names_of(sure), Names{}) << "a mean over no token";
  sure = healthy();
  sure.entropy = std::nullopt;
  EXPECT_EQ(names_of(sure), Names{});
}

TEST(LearningWatch, QuotesAResponseInOneShortLine) {
  LearningSigns signs = healthy();
  signs.num_without_answer = 8;
  signs.reason = "no </think> in it";
  signs.response = "one\ntwo\x1b[31m" + std::string(5000, 'x');
  const std::string what = find_learning_faults(signs).at(0).what;
  EXPECT_NE(what.find("8 of 8 responses"), std::string::npos) << what;
  EXPECT_NE(what.find("no </think> in it"), std::string::npos) << what;
  EXPECT_NE(what.find("one\\ntwo\\x1b"), std::string::npos) << what;
  EXPECT_EQ(what.find('\n'), std::string::npos);
  EXPECT_LT(what.size(), 400u);
}

TEST(LearningWatch, CountsSigns) {
  std::vector<Sample> samples(6);
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample& s = samples[i];
    s.group = static_cast<int64_t>(i) / 2;
    s.response_length = 2;
    s.tokens = {1, 2, 3};
    s.loss_mask = {1, 0};
    s.advantages = {0, 1};  // the second is masked
    s.reward = 0.25;
    s.reason = "equal";
  }
  samples[1].reason = std::string(reward::kNoAnswer) + "no box";
  samples[1].response_text = "hm";
  samples[2].reason = std::string(reward::kNoAnswer) + "no number";
  samples[3].reward = 1;
  samples[4].status = sample::SampleStatus::kTruncated;
  samples[5].grader_failed = true;
  samples[5].reason = std::string(reward::kNoAnswer);
  const LearningSigns signs = find_signs(samples, 0.5);
  EXPECT_EQ(signs.num_samples, 6);
  EXPECT_EQ(signs.num_graded, 5);
  EXPECT_EQ(signs.num_groups, 3);
  EXPECT_EQ(signs.num_flat_groups, 2);
  EXPECT_EQ(signs.flat_reward, 0.25);
  EXPECT_FALSE(signs.has_advantage);
  EXPECT_EQ(signs.num_trained_tokens, 6);
  EXPECT_EQ(signs.num_truncated, 1);
  EXPECT_EQ(signs.num_without_answer, 2);
  EXPECT_EQ(signs.reason, "no box");
  EXPECT_EQ(signs.response, "hm");
  EXPECT_EQ(signs.entropy, 0.5);
  samples[0].advantages = {-1, 0};
  EXPECT_TRUE(find_signs(samples, 0.5).has_advantage);
}

TEST(LearningWatch, SpeaksAtTheFirstRolloutAndAtEachTenth) {
  const std::vector<LearningFault> both = {{"a", "A"}, {"b", "B"}}, one = {{"a", "A"}};
  LearningWatch watch;
  EXPECT_EQ(watch.choose_due(3, {}), Names{});
  EXPECT_EQ(watch.choose_due(4, one), Names{"A"});
  EXPECT_EQ(watch.choose_due(5, both), Names{"B"});
  for (int64_t rollout = 6; rollout < 14; ++rollout)
    EXPECT_EQ(watch.choose_due(rollout, both), Names{}) << rollout;
  EXPECT_EQ(watch.choose_due(14, both), Names{"A"});
  EXPECT_EQ(watch.choose_due(15, both), Names{"B"});
  EXPECT_EQ(watch.choose_due(16, {}), Names{});
  EXPECT_EQ(watch.choose_due(17, both), Names{}) << "it comes and goes";
  EXPECT_EQ(watch.choose_due(24, both), Names{"A"});
}

}  // namespace
}  // namespace slimexx::rl
