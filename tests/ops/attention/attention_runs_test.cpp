#include "slimexx/kernels/attention_runs.h"

#include <gtest/gtest.h>

#include <vector>

namespace slimexx::kernels {
namespace {

constexpr int64_t kAnyTokens = 1 << 30;

struct Lengths {
  std::vector<int32_t> cu_seqlens{0}, context_lens;
  void add(int32_t queries, int32_t context, int count = 1) {
    for (int i = 0; i < count; ++i) {
      cu_seqlens.push_back(cu_seqlens.back() + queries);
      context_lens.push_back(context);
    }
  }
  AttentionRuns choose(int64_t group, int64_t max_split_tokens) const {
    return choose_attention_runs(cu_seqlens, context_lens, group, max_split_tokens);
  }
};

TEST(AttentionRuns, DecodesKeepTheirKernelBesideAChunk) {
  Lengths lengths;
  lengths.add(1, 1000, 254);
  lengths.add(16, 2000);
  lengths.add(1024, 0);
  const AttentionRuns runs = lengths.choose(4, kAnyTokens);
  EXPECT_EQ(runs.few.sequences, 254);
  EXPECT_EQ(runs.few.max_query_len, 1);
  EXPECT_EQ(runs.few.max_key_len, 1001);
  EXPECT_EQ(runs.split.sequences, 1);
  EXPECT_EQ(runs.split.max_key_len, 2016);
  EXPECT_EQ(runs.whole.sequences, 1);
  EXPECT_EQ(runs.whole.max_query_len, 1024);
  EXPECT_EQ(runs.split_tokens, 270);
}

TEST(AttentionRuns, RowsDecideNotTokens) {
  Lengths lengths;
  lengths.add(1, 9, 2);
  EXPECT_EQ(lengths.choose(16, kAnyTokens).few.sequences, 2);
  EXPECT_EQ(lengths.choose(17, kAnyTokens).split.sequences, 2);
  EXPECT_EQ(lengths.choose(64, kAnyTokens).split.sequences, 2);
  EXPECT_EQ(lengths.choose(96, kAnyTokens).whole.sequences, 2);
}

TEST(AttentionRuns, WhatFollowsALongerRunStaysInIt) {
  Lengths lengths;
  lengths.add(1, 5);
  lengths.add(300, 0);
  lengths.add(1, 5000);
  const AttentionRuns runs = lengths.choose(4, kAnyTokens);
  EXPECT_EQ(runs.few.sequences, 1);
  EXPECT_EQ(runs.whole.sequences, 2);
  EXPECT_EQ(runs.whole.max_key_len, 5001);
  EXPECT_EQ(runs.split_tokens, 1);
  EXPECT_EQ(runs.num_sequences(), 3);
}

// The number of tokens with partial results is bounded for any chunks.
TEST(AttentionRuns, SplitTokensKeepWithinTheBound) {
  Lengths lengths;
  lengths.add(1, 3000, 100);
  lengths.add(4, 3000, 50);
  for (const int64_t bound : {0, 1, 100, 150, 1000}) {
    const AttentionRuns runs = lengths.choose(4, bound);
    EXPECT_LE(runs.split_tokens, bound);
    EXPECT_EQ(runs.few.sequences,
              bound <= 100 ? bound : 100 + std::min<int64_t>(bound - 100, 200) / 4);
    EXPECT_EQ(runs.num_sequences(), 150);
    const AttentionRuns plan = choose_attention_runs({150, 4, 3004}, 300, 4, bound);
    EXPECT_GE(plan.split_tokens, runs.split_tokens);
    EXPECT_EQ(plan.few.sequences, 150);
  }
}

TEST(AttentionRuns, SequencesWithoutQueriesCostNothing) {
  Lengths lengths;
  lengths.add(0, 9000);
  lengths.add(1, 10);
  const AttentionRuns runs = lengths.choose(4, kAnyTokens);
  EXPECT_EQ(runs.few.sequences, 2);
  EXPECT_EQ(runs.few.max_key_len, 11);
}

}  // namespace
}  // namespace slimexx::kernels
