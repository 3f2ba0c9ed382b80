// Tests the response lengths that plans assume: they have the requested mean, none exceeds the
// longest, and every token is generated once.
#include "rl/config/response_lengths.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slimexx::rl {
namespace {

// The mean is the integral of longer_than.
double mean_of(const ResponseLengths& lengths, int64_t longest) {
  constexpr int kParts = 200000;
  double sum = 0;
  for (int i = 0; i < kParts; ++i)
    sum += lengths.longer_than(static_cast<double>(longest) * (i + 0.5) / kParts);
  return sum * static_cast<double>(longest) / kParts;
}

TEST(ResponseLengths, HaveTheMeanAndTheLimit) {
  for (const auto& [mean, longest] : {std::pair<int64_t, int64_t>{10, 100000},
                                      {1019, 4096},
                                      {2048, 4096},
                                      {4095, 4096},
                                      {1, 2}}) {
    const ResponseLengths lengths(mean, longest);
    EXPECT_NEAR(mean_of(lengths, longest), static_cast<double>(mean),
                2e-3 * static_cast<double>(mean))
        << mean;
    EXPECT_EQ(lengths.longer_than(static_cast<double>(longest)), 0) << mean;
    EXPECT_LE(lengths.longer_than(1), 1) << mean;
  }
}

// Without a limit the mean would be 1,039.18 tokens: 1039.18 * (1 - exp(-4096 / 1039.18)) = 1,019.
TEST(ResponseLengths, FallOffByTheSameShare) {
  const ResponseLengths lengths(1019, 4096);
  const double of_100 = lengths.longer_than(100);
  EXPECT_NEAR(lengths.longer_than(1100) / lengths.longer_than(1000), of_100, 1e-12);
  EXPECT_NEAR(lengths.longer_than(4000), std::exp(-4000 / 1039.18), 1e-6);
}

TEST(ResponseLengths, AreAllAlikeWhereTheMeanIsTheLongest) {
  const ResponseLengths lengths(512, 512);
  EXPECT_EQ(lengths.longer_than(511.9), 1);
  EXPECT_EQ(lengths.mean_age(), 256);
  double steps = 0;
  for (const auto& s : lengths.list_stretches(300, 100)) {
    steps += s.steps;
    EXPECT_DOUBLE_EQ(s.running, 100);
  }
  EXPECT_NEAR(steps, 3 * 512, 1e-9);
}

TEST(ResponseLengths, EveryTokenIsGeneratedOnce) {
  for (const double samples : {1.0, 7.0, 256.0, 1000.0})
    for (const int64_t mean : {40, 700, 1999, 2000}) {
      const ResponseLengths lengths(mean, 2000);
      double tokens = 0, steps = 0;
      for (const auto& s : lengths.list_stretches(samples, 256)) {
        EXPECT_LE(s.running, std::min(samples, 256.0) * 1.005) << samples << " of " << mean;
        EXPECT_GE(s.running, 0.995)
            << samples << " of " << mean;  // mean over the steps with any sample
        tokens += s.steps * s.running;
        steps += s.steps;
      }
      const double expected = samples * static_cast<double>(mean);
      EXPECT_NEAR(tokens, expected, 1e-6 * expected) << samples << " of " << mean;
      EXPECT_GE(steps * 256, tokens * 0.999);
    }
}

// Without a limit the mean lifetime at rate r is 1 / r, and so is the mean age of a running sample.
TEST(ResponseLengths, RunningSamplesAreAsOldAsTheMean) {
  EXPECT_NEAR(ResponseLengths(50, 100000).mean_age(), 50, 0.01);
}

}  // namespace
}  // namespace slimexx::rl
