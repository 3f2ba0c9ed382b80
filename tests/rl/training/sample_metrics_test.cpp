#include "rl/training/sample_metrics.h"

#include <gtest/gtest.h>

#include "slimexx/base/philox.h"

namespace slimexx::rl {
namespace {

Sample make_sample(int64_t index) {
  Sample s;
  s.group = index / 2, s.sample = index % 2;
  s.response_length = 1;
  s.tokens = {7, 7, 7};
  s.reward = static_cast<double>(index);
  return s;
}

TEST(SampleMetrics, GraderValuesBecomeMeansUnderSafeNames) {
  std::vector<Sample> samples = {make_sample(0), make_sample(1), make_sample(2)};
  samples[0].values = {{"acc", 1}, {"a/b c\x1b", 2}, {"", 5}};
  samples[1].values = {{"acc", 0}};
  samples[2].values = {{"acc", 9}};
  samples[2].grader_failed = true;
  for (int i = 0; i < 1000; ++i) samples[1].values["z" + std::to_string(i)] = 1;
  observe::MetricRow row;
  set_grader_values(samples, "reward/", row);
  set_grader_failed(samples, "rollout/", row);
  EXPECT_EQ(*row.find("reward/acc"), 0.5);
  EXPECT_EQ(*row.find("reward/a_b_c_"), 2);
  EXPECT_EQ(*row.find("rollout/grader_failed"), 1);
  EXPECT_EQ(row.values().size(), 65u);
}

TEST(SampleMetrics, FlatGroupsAndRepetition) {
  std::vector<Sample> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(make_sample(i));
  const double rewards[] = {1, 1, 0, 1, -0.04, -0.04, 0, 7};
  for (size_t i = 0; i < 8; ++i) samples[i].reward = rewards[i];
  samples[7].grader_failed = true;  // the rest of its group is one sample with reward 0
  samples[0].response_text = std::string(20000, 'x');
  PhiloxStream random(1, 2);
  for (int i = 0; i < 20000; ++i)
    samples[1].response_text += static_cast<char>('a' + random.next_below(26));
  samples[2].response_text = std::string(9000, 'x');
  observe::MetricRow row;
  set_zero_std(samples, "rollout/", row);
  set_repetition(samples, "rollout/", row);
  EXPECT_EQ(*row.find("rollout/zero_std/frac"), 0.75);
  EXPECT_EQ(*row.find("rollout/zero_std/count_1.0"), 1);
  EXPECT_EQ(*row.find("rollout/zero_std/count_0.0"), 2);
  EXPECT_EQ(row.find("rollout/zero_std/count_-0.0"), nullptr);
  EXPECT_EQ(*row.find("rollout/repetition_frac"), 1.0 / 8);
}

// A group is flat if all its advantages are 0; different length penalties make it not flat.
TEST(SampleMetrics, LengthPenaltiesAreNotFlat) {
  std::vector<Sample> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(make_sample(i));
  const double rewards[] = {0, 0, 1, 1, 1, 0.5, 0, 1};
  const double penalties[] = {0, -0.25, -0.5, -0.5, -0.5, 0, 0, 0};
  for (size_t i = 0; i < 8; ++i)
    samples[i].reward = rewards[i], samples[i].length_penalty = penalties[i];
  observe::MetricRow row;
  set_zero_std(samples, "rollout/", row);
  EXPECT_EQ(*row.find("rollout/zero_std/frac"), 0.5);
  EXPECT_EQ(*row.find("rollout/zero_std/count_0.5"), 2);
  EXPECT_EQ(row.find("rollout/zero_std/count_0.0"), nullptr);
  EXPECT_EQ(row.find("rollout/zero_std/count_1.0"), nullptr);
}

}  // namespace
}  // namespace slimexx::rl
