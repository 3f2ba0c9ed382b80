#include "rl/advantage/overlong.h"

#include <gtest/gtest.h>

#include "rl/advantage/estimators.h"

namespace slimexx::rl {
namespace {

Sample response(int64_t length, double reward, bool is_cut_off = false) {
  Sample s;
  s.tokens.assign(static_cast<size_t>(length + 1), 1);
  s.response_length = length;
  s.loss_mask.assign(static_cast<size_t>(length), 1);
  s.reward = reward;
  if (is_cut_off) s.status = sample::SampleStatus::kTruncated;
  return s;
}

TEST(Overlong, PenaltyByHand) {
  // Limit 100 tokens; the penalty rises to 0.5 over the last 20.
  for (const auto& [length, penalty] :
       {std::pair{0, 0.0}, {80, 0.0}, {81, -0.025}, {90, -0.25}, {100, -0.5}, {101, -0.5}})
    EXPECT_DOUBLE_EQ(overlong_penalty(length, 100, 20, 0.5), penalty) << length;
  EXPECT_EQ(overlong_penalty(100, 100, 0, 0.5), 0);
  EXPECT_DOUBLE_EQ(overlong_penalty(50, 100, 100, 1), -0.5);
}

TEST(Overlong, PenaltyCountsInTheGroup) {
  RunConfig config;
  config.rollout.rollout_max_response_len = 10;
  config.rl.overlong_buffer_len = 4;
  config.rl.rewards_normalization = true;
  config.rl.grpo_std_normalization = false;
  std::vector<Sample> samples = {response(6, 1), response(8, 1), response(10, 1, true)};
  treat_overlong(config, samples);
  EXPECT_EQ(samples[2].reward, 1);  // as graded
  // Rewards 1, 0.5 and 0, mean 0.5.
  for (const char* name : {"grpo", "reinforce_plus_plus_baseline"}) {
    config.rl.advantage_estimator = name;
    const Advantages advantages = compute_advantages(samples, config.rl);
    EXPECT_FLOAT_EQ(advantages[0][0], 0.5f) << name;
    EXPECT_FLOAT_EQ(advantages[1][0], 0) << name;
    EXPECT_FLOAT_EQ(advantages[2][0], -0.5f) << name;
  }
  config.rl.advantage_estimator = "rloo";
  EXPECT_FLOAT_EQ(compute_advantages(samples, config.rl)[0][0], 1 - 0.25f);
  config.rl.advantage_estimator = "reinforce_plus_plus";
  EXPECT_FLOAT_EQ(compute_advantages(samples, config.rl)[1][7], 0.5f);
}

TEST(Overlong, WhatIsCutOffTrainsNothing) {
  RunConfig config;
  std::vector<Sample> samples = {response(3, 1), response(5, 0, true)};
  treat_overlong(config, samples);
  EXPECT_EQ(samples[1].num_trained_tokens(), 5);
  config.rl.overlong_filtering = true;
  treat_overlong(config, samples);
  EXPECT_EQ(samples[0].num_trained_tokens(), 3);
  EXPECT_EQ(samples[1].num_trained_tokens(), 0);
  config.rl.grpo_std_normalization = false;
  EXPECT_FLOAT_EQ(compute_advantages(samples, config.rl)[0][0], 0.5f);
}

}  // namespace
}  // namespace slimexx::rl
