#include "rl/generation/dynamic_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

constexpr const char* kFilter = "check_reward_nonzero_std";

std::vector<Sample> make_group(int64_t number, const std::vector<double>& rewards) {
  std::vector<Sample> group(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    group[i].group = number;
    group[i].sample = static_cast<int64_t>(i);
    group[i].reward = rewards[i];
  }
  return group;
}

TEST(FindDropReason, IsTheRewardThatAllHave) {
  EXPECT_EQ(find_drop_reason(make_group(0, {1, 0, 1})), "");
  EXPECT_EQ(find_drop_reason(make_group(0, {0.5, 0.5 + 3e-6})), "");  // deviation 2.1e-6
  EXPECT_EQ(find_drop_reason(make_group(0, {0.5, 0.5 + 1e-6})),
            "zero_std_0.5");  // deviation 7.1e-7
  EXPECT_EQ(find_drop_reason(make_group(0, {1, 1, 1})), "zero_std_1.0");
  EXPECT_EQ(find_drop_reason(make_group(0, {0, 0})), "zero_std_0.0");
  EXPECT_EQ(find_drop_reason(make_group(0, {1e9 + 0.1, 1e9 + 0.1, 1e9 + 0.1})),
            "zero_std_1000000000.1");
  EXPECT_EQ(find_drop_reason(make_group(0, {-0.04, -0.04})), "zero_std_0.0");
  EXPECT_EQ(find_drop_reason(make_group(0, {-0.96, -0.96})), "zero_std_-1.0");
}

TEST(FindDropReason, LooksAtGradedSamplesAlone) {
  std::vector<Sample> group = make_group(0, {0, 1, 1});
  group[0].grader_failed = true;
  EXPECT_EQ(find_drop_reason(group), "zero_std_1.0");
  group[1].grader_failed = true;
  EXPECT_EQ(find_drop_reason(group), "grader_failed");
}

// DAPO filters by accuracy: a length penalty does not save a group.
TEST(FindDropReason, LooksAtGradesAlone) {
  std::vector<Sample> group = make_group(0, {0, 0, 0});
  group[1].length_penalty = -0.5;
  EXPECT_EQ(find_drop_reason(group), "zero_std_0.0");
  group[0].reward = 1, group[0].length_penalty = -1;
  group[1].length_penalty = 0;
  EXPECT_EQ(find_drop_reason(group), "");
}

TEST(FindDynamicFilter, TakesTheNamesOfSlime) {
  const std::string module = "slime.rollout.filter_hub.dynamic_sampling_filters.";
  for (const std::string& prefix : {std::string(), module}) {
    ASSERT_TRUE(find_dynamic_filter(prefix + kFilter));
    EXPECT_FALSE(find_dynamic_filter(prefix + kFilter)->keeps_rest);
    ASSERT_TRUE(find_dynamic_filter(prefix + kFilter + "_with_fallback"));
    EXPECT_TRUE(find_dynamic_filter(prefix + kFilter + "_with_fallback")->keeps_rest);
  }
  for (const std::string& none : {std::string(), module, "other." + std::string(kFilter)})
    EXPECT_FALSE(find_dynamic_filter(none)) << none;
}

// Character i of `plan` is for group i: '0' or '1' drops it with that reward, 'f' drops it because
// it has no grade, and 'k' keeps it.
class Filling {
 public:
  explicit Filling(std::string plan) : plan_(std::move(plan)) {}

  DrawnSamples fill(const std::string& filter, int64_t wanted, std::optional<int64_t> at_once = {},
                    int64_t most_dropped = 100) {
    RolloutOptions options;
    options.rollout_batch_size = wanted;
    options.n_samples_per_prompt = 2;
    options.over_sampling_batch_size = at_once;
    return fill_rollout(
        *find_dynamic_filter(filter), options, most_dropped, [this](int64_t n) { return draw(n); },
        "rollout 7");
  }
  const std::vector<int64_t>& draws() const { return draws_; }

 private:
  std::vector<Sample> draw(int64_t n) {
    draws_.push_back(n);
    std::vector<Sample> samples;
    for (; n > 0; --n, ++next_) {
      const char c = plan_.at(static_cast<size_t>(next_));
      const double first = c == 'k' ? 0 : c - '0', second = c == 'k' ? 1 : first;
      for (Sample& s : make_group(next_, {first, second})) {
        s.grader_failed = c == 'f';
        samples.push_back(std::move(s));
      }
    }
    return samples;
  }
  const std::string plan_;
  int64_t next_ = 0;
  std::vector<int64_t> draws_;
};

std::vector<int64_t> taken_groups(const DrawnSamples& drawn) {
  std::vector<int64_t> groups;
  for (const Sample& s : drawn.samples) {
    if (s.sample == 0) groups.push_back(s.group);
    EXPECT_EQ(s.group, groups.back());
  }
  return groups;
}
using Numbers = std::vector<int64_t>;
using Reasons = std::map<std::string, int64_t>;

// Half of the first draw is kept, so the next draw would need (2 + 2 sqrt(2 / 2)) * 2 = 8 groups;
// draws are limited to the size of the first.
TEST(FillRollout, DrawsWhatIsLikelyToHoldWhatIsMissing) {
  Filling filling("k0k11k0k-");
  const DrawnSamples drawn = filling.fill(kFilter, 4);
  EXPECT_EQ(filling.draws(), (Numbers{4, 4}));
  EXPECT_EQ(taken_groups(drawn), (Numbers{0, 2, 5, 7}));
  EXPECT_EQ(drawn.samples.size(), 8u);
  EXPECT_EQ(drawn.num_drawn_groups, 8);
  EXPECT_EQ(drawn.drop_reasons, (Reasons{{"zero_std_0.0", 2}, {"zero_std_1.0", 2}}));
}

// 15 of 16 are kept and one is missing: (1 + 2 sqrt(1 / 16)) * 16 / 15 = 1.6.
TEST(FillRollout, DrawsFewWhereMostAreKept) {
  Filling filling("kkk0kkkkkkkkkkkk0k-");
  const DrawnSamples drawn = filling.fill(kFilter, 16);
  EXPECT_EQ(filling.draws(), (Numbers{16, 2}));
  EXPECT_EQ(drawn.samples.back().group, 17);
}

TEST(FillRollout, DrawsOnceWhereAllAreKept) {
  Filling filling("kkk-");
  EXPECT_EQ(taken_groups(filling.fill(kFilter, 3)), (Numbers{0, 1, 2}));
  EXPECT_EQ(filling.draws(), (Numbers{3}));
}

TEST(FillRollout, TakesTheFirstOfManyInTheOrderOfPrompts) {
  Filling filling("k0000k0kkkk0-");
  const DrawnSamples drawn = filling.fill(kFilter, 4, 6);
  EXPECT_EQ(filling.draws(), (Numbers{6, 6}));
  EXPECT_EQ(taken_groups(drawn), (Numbers{0, 5, 7, 8}));
  EXPECT_EQ(drawn.num_drawn_groups, 12);
}

TEST(FillRollout, LeavesWhatIsKeptBeyondIt) {
  Filling filling("0kkkkk-");
  const DrawnSamples drawn = filling.fill(kFilter, 4, 6);
  EXPECT_EQ(taken_groups(drawn), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(drawn.num_drawn_groups, 6);
  EXPECT_EQ(drawn.drop_reasons, (Reasons{{"zero_std_0.0", 1}}));
}

TEST(FillRollout, FallsBackToWhatWasDropped) {
  Filling filling("0k1k0k-");
  const DrawnSamples drawn = filling.fill("check_reward_nonzero_std_with_fallback", 5, 6);
  EXPECT_EQ(filling.draws(), (Numbers{6}));
  EXPECT_EQ(taken_groups(drawn), (Numbers{0, 1, 2, 3, 5}));
  EXPECT_EQ(drawn.drop_reasons, (Reasons{{"zero_std_0.0", 1}}));
}

// A whole draw without grades counts as dropped groups.
TEST(FillRollout, DrawsOnAfterGroupsWithoutAGrade) {
  Filling filling("ffffffkf0k-");
  const DrawnSamples drawn = filling.fill(kFilter, 2, {}, 7);
  EXPECT_EQ(filling.draws(), (Numbers{2, 2, 2, 2, 2}));
  EXPECT_EQ(taken_groups(drawn), (Numbers{6, 9}));
  EXPECT_EQ(drawn.drop_reasons, (Reasons{{"grader_failed", 7}, {"zero_std_0.0", 1}}));
}

TEST(FillRollout, SaysWhereNothingHasAGrade) {
  Filling filling("kffffff-");
  try {
    filling.fill(kFilter, 2, {}, 4);
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("5 grader_failed in total"), std::string::npos)
        << error.message();
    EXPECT_NE(error.hint().find("labels"), std::string::npos) << error.hint();
  }
}

TEST(FillRollout, EndsWhereNothingIsKept) {
  Filling filling("k1111111111");
  try {
    filling.fill(kFilter, 2, {}, 5);
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRun);
    EXPECT_NE(error.message().find("rollout 7: the last 5 groups were all dropped (5 zero_std_1.0 "
                                   "in total), and 1 of 2 groups are still missing"),
              std::string::npos)
        << error.message();
    EXPECT_EQ(error.where(), "rollout.dynamic_sampling_filter_path");
  }
}

}  // namespace
}  // namespace slimexx::rl
