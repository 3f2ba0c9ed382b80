#include "train/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

double sum_of(const std::vector<std::vector<float>>& weights) {
  double sum = 0;
  for (const auto& own : weights) sum = std::accumulate(own.begin(), own.end(), sum);
  return sum;
}

TEST(TokenWeights, SumUpAsTold) {
  std::vector<Sample> samples = mixed_samples(6, 3);
  for (Sample& sample : samples) std::ranges::fill(sample.loss_mask, uint8_t{1});
  const auto expect_sum = [&](const StepLoss& loss, const char* what) {
    const double sum = sum_token_weights(samples, loss);
    EXPECT_NEAR(sum, sum_of(token_weights(samples, loss)), 1e-6) << what;
    return sum;
  };
  StepLoss by_tokens, divided;
  by_tokens.per_token_loss = true;
  divided.token_divisor = 50;
  EXPECT_EQ(expect_sum({}, "samples"), 1);
  EXPECT_EQ(expect_sum(by_tokens, "tokens"), 1);
  EXPECT_LT(expect_sum(divided, "divisor"), 1);
  for (const size_t masked : {size_t{0}, size_t{4}})
    std::ranges::fill(samples[masked].loss_mask, uint8_t{0});
  EXPECT_EQ(expect_sum({}, "two of six are masked"), 4.0 / 6);
  EXPECT_EQ(expect_sum(by_tokens, "tokens of four"), 1);
  expect_sum(divided, "divisor, four");
  for (Sample& sample : samples) std::ranges::fill(sample.loss_mask, uint8_t{0});
  EXPECT_EQ(expect_sum({}, "all are masked"), 0);
  EXPECT_EQ(expect_sum(by_tokens, "no token"), 0);
}

}  // namespace
}  // namespace slimexx::train
