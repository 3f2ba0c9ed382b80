#include "rl/advantage/estimators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/ops/policy_loss.h"
#include "test_paths.h"

namespace slimexx::rl {
namespace {

Sample sample_of(int64_t group, double reward, int64_t response_length = 1) {
  Sample s;
  s.group = group;
  s.reward = reward;
  s.response_length = response_length;
  s.tokens.assign(static_cast<size_t>(response_length) + 1, 0);
  s.loss_mask.assign(static_cast<size_t>(response_length), 1);
  return s;
}

std::vector<Sample> group_of(const std::vector<double>& rewards, int64_t group = 0) {
  std::vector<Sample> samples;
  for (const double r : rewards) samples.push_back(sample_of(group, r));
  return samples;
}

RlOptions options_of(const std::string& estimator) {
  RlOptions o;
  o.advantage_estimator = estimator;
  return o;
}

void expect_advantages(const std::vector<Sample>& samples, const RlOptions& options,
                       const std::vector<std::vector<double>>& expected) {
  const Advantages actual = compute_advantages(samples, options);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].size(), expected[i].size()) << "sample " << i;
    for (size_t t = 0; t < actual[i].size(); ++t) {
      EXPECT_NEAR(actual[i][t], expected[i][t], 2e-6 * (1 + std::abs(expected[i][t])))
          << options.advantage_estimator << ", sample " << i << ", token " << t;
    }
  }
}

TEST(Grpo, ByHand) {
  // Mean 0.25, squares 0.5625 + 3 * 0.0625 = 0.75, std sqrt(0.75 / 3) = 0.5: 0.75 / 0.5 = 1.5.
  expect_advantages(group_of({1, 0, 0, 0}), options_of("grpo"),
                    {{1.499997}, {-0.499999}, {-0.499999}, {-0.499999}});
  RlOptions o = options_of("grpo");
  o.grpo_std_normalization = false;  // Dr. GRPO
  expect_advantages(group_of({1, 0, 0, 0}), o, {{0.75}, {-0.25}, {-0.25}, {-0.25}});
  o.rewards_normalization = false;
  expect_advantages(group_of({1, 0, 0.5}), o, {{1}, {0}, {0.5}});
  o.grpo_std_normalization = true;  // no effect without the mean
  expect_advantages(group_of({1, 0, 0.5}), o, {{1}, {0}, {0.5}});
  // Groups of different size, interleaved; every response token gets the sample's value.
  std::vector<Sample> samples = {sample_of(7, 3, 2), sample_of(2, 5, 1), sample_of(7, 1, 3),
                                 sample_of(2, 5, 2), sample_of(9, 4, 1)};
  // Group 7: mean 2, std sqrt(2): 1/sqrt(2). Group 2: equal. Group 9: alone.
  const double a = 1 / (std::sqrt(2.0) + 1e-6);
  expect_advantages(samples, options_of("grpo"), {{a, a}, {0}, {-a, -a, -a}, {0, 0}, {0}});
}

TEST(Grpo, SharedVectors) {
  std::ifstream file(test_data_path("golden/grading/schedule_vectors.json"));
  ASSERT_TRUE(file);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json vectors = parse_json(text, "schedule_vectors.json");
  for (const Json& row : vectors.at("grpo_norm")) {
    std::vector<Sample> samples;
    std::vector<std::vector<double>> expected;
    for (size_t i = 0; i < row["r"].size(); ++i) {
      const auto group = static_cast<int64_t>(i / row["n"].get<size_t>());
      samples.push_back(sample_of(group, row["r"][i].get<double>()));
      expected.push_back({row["out"][i].get<double>()});
    }
    RlOptions o = options_of("grpo");
    o.grpo_std_normalization = row["std"].get<bool>();
    expect_advantages(samples, o, expected);
  }
}

// A sample without a grade gets advantage 0, and its group is treated as if the sample had never
// been drawn.
TEST(GraderFailed, LeavesTheGroupsStatistics) {
  std::vector<Sample> samples = group_of({1, 99, 0, 0, 0});
  samples[1].grader_failed = true;
  samples[1].loss_mask = {0};
  // Expects the values for rewards 1, 0, 0, 0 in Grpo.ByHand.
  expect_advantages(samples, options_of("grpo"),
                    {{1.499997}, {0}, {-0.499999}, {-0.499999}, {-0.499999}});
  // Means of the other rewards: 0 for the first, 1/3 for the other three.
  expect_advantages(samples, options_of("rloo"), {{1}, {0}, {-1.0 / 3}, {-1.0 / 3}, {-1.0 / 3}});
  RlOptions baseline = options_of("reinforce_plus_plus_baseline");
  expect_advantages(samples, baseline, {{0.75}, {0}, {-0.25}, {-0.25}, {-0.25}});
  expect_advantages(samples, options_of("reinforce_plus_plus"), {{1}, {0}, {0}, {0}, {0}});
  // Whitening uses only unmasked tokens: mean 0.25, unbiased deviation 0.5.
  RlOptions whitened = options_of("reinforce_plus_plus");
  whitened.normalize_advantages = true;
  const Advantages a = compute_advantages(samples, whitened);
  EXPECT_NEAR(a[0][0], 1.5, 1e-6);
  EXPECT_NEAR(a[2][0], -0.5, 1e-6);
  // If only one sample of a group has a grade, there is nothing to compare it with.
  for (size_t i = 2; i < 5; ++i) samples[i].grader_failed = true;
  for (const char* name : {"grpo", "gspo", "cispo", "rloo", "reinforce_plus_plus_baseline"})
    expect_advantages(samples, options_of(name), {{0}, {0}, {0}, {0}, {0}});
}

TEST(Rloo, ByHand) {
  // Others' means: (2+6)/2 = 4, (1+6)/2 = 3.5, (1+2)/2 = 1.5.
  expect_advantages(group_of({1, 2, 6}), options_of("rloo"), {{-3}, {-1.5}, {4.5}});
  expect_advantages(group_of({5}), options_of("rloo"), {{0}});
  // KL 0.1 * (0.5 + 1) is subtracted from the first reward: 1 - 0.15 = 0.85 against 2.
  std::vector<Sample> samples = {sample_of(0, 1, 2), sample_of(0, 2, 2)};
  samples[0].rollout_log_probs = {-1, -1};
  samples[0].ref_log_probs = {-1.5, -2};
  samples[1].rollout_log_probs = samples[1].ref_log_probs = {-1, -1};
  RlOptions o = options_of("rloo");
  o.kl_coef = 0.1;
  expect_advantages(samples, o, {{-1.15, -1.15}, {1.15, 1.15}});
}

// Four tokens, the last masked; reward 2 on the third. k1: K = log p - log p_ref.
std::vector<Sample> kl_sample() {
  Sample s = sample_of(0, 2, 4);
  s.loss_mask = {1, 1, 1, 0};
  s.rollout_log_probs = {-1, -2, -3, -4};
  s.ref_log_probs = {-1.5, -1, -3, 0};  // K = 0.5, -1, 0, (-4)
  return {s};
}

TEST(ReinforcePlusPlus, ByHand) {
  RlOptions o = options_of("reinforce_plus_plus");
  // Without KL the reward is discounted backwards from the last unmasked token.
  o.gamma = 0.5;
  expect_advantages(kl_sample(), o, {{0.5, 1, 2, 0}});
  // r = (-0.05, +0.1, 2, 0): A_2 = 2, A_1 = 0.1 + 0.5 * 2 = 1.1, A_0 = -0.05 + 0.5 * 1.1 = 0.5.
  o.kl_coef = 0.1;
  expect_advantages(kl_sample(), o, {{0.5, 1.1, 2, 0}});
  o.gamma = 1;
  expect_advantages(kl_sample(), o, {{2.05, 2.1, 2, 0}});
  // k2: 0.1 * (0.125, 0.5, 0).
  o.kl_loss_type = "k2";
  expect_advantages(kl_sample(), o, {{1.9375, 1.95, 2, 0}});
  // Old log-probs, if present, are used instead of those of the rollout: K = (0, 0, 1).
  std::vector<Sample> samples = kl_sample();
  samples[0].old_log_probs = {-1.5, -1, -2, 0};
  o.kl_loss_type = "k1";
  expect_advantages(samples, o, {{1.9, 1.9, 1.9, 0}});
  // A sample without unmasked tokens gets 0.
  samples = kl_sample();
  samples[0].loss_mask = {0, 0, 0, 0};
  expect_advantages(samples, o, {{0, 0, 0, 0}});
}

TEST(ReinforcePlusPlusBaseline, ByHand) {
  RlOptions o = options_of("reinforce_plus_plus_baseline");
  o.kl_coef = 0.1;
  std::vector<Sample> samples = kl_sample();
  samples.push_back(sample_of(0, 4, 1));
  samples[1].rollout_log_probs = samples[1].ref_log_probs = {-1};
  // Mean 3: -1 - 0.1 * (0.5, -1, 0), without penalty on the masked token; 4 - 3 = 1.
  expect_advantages(samples, o, {{-1.05, -0.9, -1, -1}, {1}});
  o.rewards_normalization = false;
  expect_advantages(samples, o, {{1.95, 2.1, 2, 2}, {4}});
}

TEST(Whitening, ByHand) {
  // Unmasked tokens: 1, 1, 4 (one of two in sample 1). Mean 2, variance (1+1+4)/2 = 3.
  std::vector<Sample> samples = {sample_of(0, 1, 2), sample_of(1, 4, 2)};
  samples[1].loss_mask = {1, 0};
  RlOptions o = options_of("reinforce_plus_plus_baseline");
  o.rewards_normalization = false;
  o.normalize_advantages = true;
  const double s = std::sqrt(3 + 1e-8);
  expect_advantages(samples, o, {{-1 / s, -1 / s}, {2 / s, 2 / s}});
  // With one token or none the deviation is undefined: nothing changes.
  samples = {sample_of(0, 5, 1)};
  expect_advantages(samples, o, {{5}});
  samples[0].loss_mask = {0};
  expect_advantages(samples, o, {{5}});
}

TEST(Advantages, ThoseOfADumpStand) {
  std::vector<Sample> samples = group_of({1, 0, 0, 0});
  samples[1].advantage = -7.5;
  expect_advantages(samples, options_of("grpo"), {{1.499997}, {-7.5}, {-0.499999}, {-0.499999}});
}

TEST(Advantages, KlWithoutLogProbsIsRefused) {
  std::vector<Sample> samples = {sample_of(3, 1, 2)};
  samples[0].ref_log_probs = {-1, -1};
  RlOptions o = options_of("reinforce_plus_plus");
  EXPECT_NO_THROW(compute_advantages(samples, o));
  o.kl_coef = 0.1;
  try {
    compute_advantages(samples, o);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInput);
    EXPECT_NE(std::string(e.what()).find("group 3 sample 0 has no log-probs"), std::string::npos);
  }
}

// ---- properties of all estimators ----

std::vector<Sample> random_samples(uint64_t seed) {
  PhiloxStream random(seed, 9);
  std::vector<Sample> samples;
  for (int64_t group = 0; group < 6; ++group) {
    const uint64_t size = 1 + random.next_below(6);
    for (uint64_t i = 0; i < size; ++i) {
      Sample s =
          sample_of(group, random.next_normal(), static_cast<int64_t>(1 + random.next_below(7)));
      for (auto& m : s.loss_mask) m = random.next_below(4) > 0;
      for (int64_t t = 0; t < s.response_length; ++t) {
        s.rollout_log_probs.push_back(static_cast<float>(-1 + random.next_normal()));
        s.ref_log_probs.push_back(static_cast<float>(-1 + random.next_normal()));
      }
      samples.push_back(std::move(s));
    }
  }
  return samples;
}

class EstimatorTest : public testing::TestWithParam<std::string> {};

// For estimators that compare the samples of a prompt.
class GroupEstimatorTest : public EstimatorTest {};

std::vector<std::string> list_group_estimator_names() {
  std::vector<std::string> names = list_estimator_names();
  std::erase_if(names,
                [](const std::string& name) { return find_estimator(name)->min_group_size < 2; });
  return names;
}

TEST_P(EstimatorTest, OrderOfSamplesHasNoSay) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto samples = random_samples(seed);
    for (const bool whiten : {false, true}) {
      RlOptions o = options_of(GetParam());
      o.kl_coef = find_estimator(GetParam())->uses_kl_in_reward ? 0.1 : 0;
      o.normalize_advantages = whiten;
      const Advantages expected = compute_advantages(samples, o);
      PhiloxStream random(seed, 10);
      std::vector<size_t> order(samples.size());
      for (size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
        std::swap(order[i], order[random.next_below(i + 1)]);
      }
      std::vector<Sample> shuffled;
      for (const size_t i : order) shuffled.push_back(samples[i]);
      const Advantages actual = compute_advantages(shuffled, o);
      for (size_t i = 0; i < order.size(); ++i) {
        for (size_t t = 0; t < actual[i].size(); ++t)
          EXPECT_NEAR(actual[i][t], expected[order[i]][t], 1e-5) << "seed " << seed;
      }
    }
  }
}

TEST_P(EstimatorTest, OneValueAResponseToken) {
  const auto samples = random_samples(17);
  const Advantages advantages = compute_advantages(samples, options_of(GetParam()));
  for (size_t i = 0; i < samples.size(); ++i)
    EXPECT_EQ(advantages[i].size(), static_cast<size_t>(samples[i].response_length));
}

// A prompt whose samples all got the same reward teaches nothing: advantages are exactly 0, even if
// the mean of the rewards is not exact in binary.
TEST_P(GroupEstimatorTest, EqualRewardsGiveZero) {
  for (const double reward : {0.0, 1.0, 0.1, -0.7, 1e6 + 0.3}) {
    for (const size_t n : {2u, 3u, 7u, 8u}) {
      const auto samples = group_of(std::vector<double>(n, reward));
      for (const auto& own : compute_advantages(samples, options_of(GetParam())))
        EXPECT_EQ(own[0], 0.0f) << n << " times " << reward;
    }
  }
}

TEST_P(GroupEstimatorTest, GroupsSumToZeroAndDoNotMix) {
  const auto samples = random_samples(23);
  const Advantages advantages = compute_advantages(samples, options_of(GetParam()));
  for (const auto& group : group_samples(samples)) {
    if (group.size() == 1) continue;
    double sum = 0;
    for (const size_t i : group) sum += advantages[i][0];
    EXPECT_NEAR(sum, 0, 1e-5);
    std::vector<Sample> alone;
    for (const size_t i : group) alone.push_back(samples[i]);
    const Advantages own = compute_advantages(alone, options_of(GetParam()));
    for (size_t k = 0; k < group.size(); ++k) EXPECT_EQ(own[k], advantages[group[k]]);
  }
}

TEST_P(GroupEstimatorTest, AddingAConstantToAGroupHasNoSay) {
  auto samples = random_samples(29);
  std::erase_if(samples, [](const Sample& s) { return s.group % 2 == 0; });
  const Advantages before = compute_advantages(samples, options_of(GetParam()));
  const auto groups = group_samples(samples);
  for (auto& s : samples) s.reward += static_cast<double>(s.group);
  const Advantages after = compute_advantages(samples, options_of(GetParam()));
  for (const auto& group : groups) {
    if (group.size() == 1) continue;
    for (const size_t i : group) EXPECT_NEAR(after[i][0], before[i][0], 1e-5);
  }
}

TEST_P(EstimatorTest, WhitenedTokensHaveMeanZeroAndVarianceOne) {
  const auto samples = random_samples(31);
  RlOptions o = options_of(GetParam());
  o.normalize_advantages = true;
  const Advantages advantages = compute_advantages(samples, o);
  double n = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t t = 0; t < advantages[i].size(); ++t) {
      if (samples[i].loss_mask[t] == 0) continue;
      n += 1, sum += advantages[i][t], squares += double{advantages[i][t]} * advantages[i][t];
    }
  }
  EXPECT_NEAR(sum / n, 0, 1e-6);
  EXPECT_NEAR(squares / (n - 1), 1, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, EstimatorTest, testing::ValuesIn(list_estimator_names()),
                         [](const auto& instance) { return instance.param; });
INSTANTIATE_TEST_SUITE_P(All, GroupEstimatorTest, testing::ValuesIn(list_group_estimator_names()),
                         [](const auto& instance) { return instance.param; });

TEST(Estimators, TableIsTheIssues) {
  EXPECT_EQ(list_estimator_names(),
            (std::vector<std::string>{"grpo", "gspo", "cispo", "reinforce_plus_plus",
                                      "reinforce_plus_plus_baseline", "rloo"}));
  EXPECT_EQ(find_estimator("gspo")->loss, ops::LossKind::kGspo);
  EXPECT_EQ(find_estimator("cispo")->loss, ops::LossKind::kCispo);
  EXPECT_EQ(find_estimator("rloo")->loss, ops::LossKind::kClip);
  EXPECT_EQ(find_estimator("ppo"), nullptr);
}

}  // namespace
}  // namespace slimexx::rl
