// Tests the microbatches that memory plans measure.
#include "train/memory/largest_microbatches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "slimexx/model/context_shards.h"

namespace slimexx::train {
namespace {

constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

std::vector<int64_t> lengths(const std::vector<Sample>& samples) {
  std::vector<int64_t> all;
  for (const Sample& s : samples) all.push_back(std::ssize(s.tokens));
  return all;
}

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t v : values) total += v;
  return total;
}

int64_t count_responses(const std::vector<Sample>& samples) {
  int64_t rows = 0;
  for (const Sample& s : samples) rows += s.response_length;
  return rows;
}

int64_t count_labels(const std::vector<Sample>& samples) {
  int64_t labels = 0;
  for (const Sample& s : samples) labels += std::ranges::count(s.loss_mask, uint8_t{1});
  return labels;
}

TEST(LargestMicrobatches, HasFewMostAndLongSamples) {
  const auto all = list_largest_microbatches(
      {.num_tokens = 100, .num_samples = 10, .longest = 40, .kept_logit_rows = kAllRows});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(lengths(all[0]), (std::vector<int64_t>{33, 33, 34}));
  EXPECT_EQ(lengths(all[1]), std::vector<int64_t>(10, 10));
  EXPECT_EQ(lengths(all[2]), (std::vector<int64_t>{40, 40, 20}));
  EXPECT_EQ(lengths(all[3])[0], 40);
  EXPECT_EQ(all[3].size(), 10u);
  for (const auto& samples : all) {
    EXPECT_EQ(sum(lengths(samples)), 100);
    EXPECT_EQ(count_responses(samples), 100 - std::ssize(samples));
    EXPECT_EQ(count_labels(samples), count_responses(samples));
  }
}

// With one more row the head would keep no logits.
TEST(LargestMicrobatches, HasJustTheRowsWhoseLogitsAreKept) {
  for (const int64_t kept : {12, 50, 89}) {
    const auto all = list_largest_microbatches({.num_tokens = 100,
                                                .num_samples = 10,
                                                .longest = 40,
                                                .kept_logit_rows = kept,
                                                .num_trained_mtp = 1});
    ASSERT_EQ(all.size(), 12u);
    for (size_t i = 0; i < all.size(); i += 3) {
      EXPECT_EQ(count_responses(all[i]), 100 - std::ssize(all[i]));
      EXPECT_EQ(count_responses(all[i + 1]), kept);
      EXPECT_EQ(count_responses(all[i + 2]), 100 - std::ssize(all[i]));
      // Token 1 is trained, although it is not an MTP label.
      const int64_t labels = std::min(kept, 100 - 2 * std::ssize(all[i]));
      EXPECT_EQ(count_labels(all[i + 2]), labels + std::ssize(all[i]));
    }
  }
}

TEST(LargestMicrobatches, ALongSampleStandsAlone) {
  const auto all = list_largest_microbatches(
      {.num_tokens = 30, .num_samples = 1, .longest = 50, .kept_logit_rows = 20});
  for (const auto& samples : all) {
    EXPECT_EQ(lengths(samples), std::vector<int64_t>{50});
    EXPECT_TRUE(samples[0].response_length == 49 || samples[0].response_length == 20);
  }
}

int64_t most_own_tokens(const std::vector<int64_t>& lengths, int cp) {
  int64_t most = 0;
  for (int rank = 0; rank < cp; ++rank) {
    int64_t own = 0;
    for (const int64_t length : lengths)
      for (const dist::Range& chunk : model::context_chunks(length, cp, rank)) own += chunk.size();
    most = std::max(most, own);
  }
  return most;
}

// No set of equally long samples gives a rank more tokens than the plan, and the plan has little
// more.
TEST(LargestMicrobatches, CoversUnevenSharesOfContext) {
  constexpr int64_t kTokens = 240;
  for (const int cp : {2, 3, 4, 8}) {
    int64_t planned = 0, taken = 0;
    for (const auto& samples : list_largest_microbatches({.num_tokens = kTokens,
                               .num_samples = kTokens,
                               .longest = kTokens,
                               .kept_logit_rows = kAllRows,
                               .cp_size = cp}))
      planned = std::max(planned, most_own_tokens(lengths(samples), cp));
    for (int64_t length = 2; length <= kTokens; ++length)
      taken = std::max(
          taken,
          most_own_tokens(std::vector<int64_t>(static_cast<size_t>(kTokens / length), length), cp));
    EXPECT_LE(taken, planned) << cp;
    EXPECT_LE(planned, taken + 4) << cp;
  }
}

}  // namespace
}  // namespace slimexx::train
