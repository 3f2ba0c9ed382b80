#include "slimexx/model/context_shards.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace slimexx::model {
namespace {

using dist::Range;

TEST(ContextShards, ARankHasAnEarlyAndALateChunk) {
  EXPECT_EQ(context_chunks(12, 2, 0), (std::array<Range, 2>{Range{0, 3}, Range{9, 12}}));
  EXPECT_EQ(context_chunks(12, 2, 1), (std::array<Range, 2>{Range{3, 6}, Range{6, 9}}));
  EXPECT_EQ(context_chunks(7, 1, 0), (std::array<Range, 2>{Range{0, 3}, Range{3, 7}}));
}

// For any length: each position occurs once, chunks ascend in zigzag order, and sizes differ by at
// most one token.
TEST(ContextShards, ChunksCoverEverySequenceEvenly) {
  for (const int cp : {1, 2, 3, 4, 7})
    for (int64_t length = 0; length < 40; ++length) {
      std::vector<Range> chunks(static_cast<size_t>(2 * cp));
      for (int rank = 0; rank < cp; ++rank) {
        const auto own = context_chunks(length, cp, rank);
        chunks[static_cast<size_t>(rank)] = own[0];
        chunks[static_cast<size_t>(2 * cp - 1 - rank)] = own[1];
      }
      int64_t next = 0;
      for (const Range& chunk : chunks) {
        EXPECT_EQ(chunk.begin, next) << length << " tokens over " << cp;
        EXPECT_GE(chunk.size(), length / (2 * cp));
        EXPECT_LE(chunk.size(), (length + 2 * cp - 1) / (2 * cp));
        next = chunk.end;
      }
      EXPECT_EQ(next, length);
    }
}

TEST(ContextShards, RowsByRankAndBySequence) {
  // The first sequence has rows at all positions, the second only at 2 to 5.
  const std::vector<SequenceRows> sequences = {{4, {0, 4}}, {8, {2, 6}}};
  const ContextShards s = shard_rows(sequences, 2);
  EXPECT_EQ(s.ranges, (std::vector<Range>{{0, 2}, {2, 8}}));
  EXPECT_EQ(s.sequence_rows, (std::vector<int32_t>{0, 3, 1, 2, 4, 5, 6, 7}));
  EXPECT_EQ(s.rank_rows, (std::vector<int32_t>{0, 2, 3, 1, 4, 5, 6, 7}));
  const std::vector<int32_t> values = {10, 11, 12, 13, 22, 23, 24, 25};
  EXPECT_EQ(take_share(s, 0, values), (std::vector<int32_t>{10, 13}));
  EXPECT_EQ(take_share(s, 1, values), (std::vector<int32_t>{11, 12, 22, 23, 24, 25}));
}

TEST(ContextShards, OrdersAreInverseAndRanksFollowEachOther) {
  const std::vector<SequenceRows> sequences = {{1, {0, 0}}, {13, {4, 12}}, {0, {0, 0}},
                                               {2, {0, 1}}, {5, {0, 5}},   {31, {3, 30}}};
  for (const int cp : {1, 2, 3, 4}) {
    const ContextShards s = shard_rows(sequences, cp);
    ASSERT_EQ(s.ranges.size(), static_cast<size_t>(cp));
    ASSERT_EQ(s.sequence_rows.size(), 41u);
    int64_t next = 0;
    for (const Range& range : s.ranges) {
      EXPECT_EQ(range.begin, next);
      next = range.end;
      const auto rows = s.sequence_rows.begin();
      EXPECT_TRUE(std::is_sorted(rows + range.begin, rows + range.end)) << "cp " << cp;
    }
    EXPECT_EQ(next, 41);
    for (size_t i = 0; i < s.sequence_rows.size(); ++i)
      EXPECT_EQ(s.rank_rows[static_cast<size_t>(s.sequence_rows[i])], static_cast<int32_t>(i));
  }
}

// Every row is in a page of its sequence, at its position; only the ends of last pages are unused.
TEST(ContextShards, PagesHoldSequencesByPosition) {
  const std::vector<int64_t> lengths = {300, 1, 128, 129, 2 * kContextPage};
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> cu_seqlens = {0};
  for (const int64_t length : lengths) {
    sequences.push_back({length, {0, length}});
    cu_seqlens.push_back(cu_seqlens.back() + static_cast<int32_t>(length));
  }
  for (const int cp : {2, 3}) {
    const ContextShards shards = shard_rows(sequences, cp);
    const ContextPages pages = list_pages(shards, cu_seqlens);
    int64_t num_pages = 0;
    for (size_t b = 0; b < lengths.size(); ++b) {
      EXPECT_EQ(pages.first_page[b], num_pages) << b;
      for (int64_t p = 0; p < lengths[b]; ++p) {
        const auto at = static_cast<size_t>(num_pages * kContextPage + p);
        const auto by_rank = static_cast<size_t>(pages.rows[at]);
        ASSERT_EQ(shards.sequence_rows[by_rank], cu_seqlens[b] + p) << b << ", position " << p;
      }
      num_pages += (lengths[b] + kContextPage - 1) / kContextPage;
    }
    EXPECT_EQ(std::ssize(pages.rows), num_pages * kContextPage);
    EXPECT_EQ(pages.most_pages, 3);
    EXPECT_LE(num_pages, bound_pages(cu_seqlens.back(), std::ssize(lengths)));
  }
}

}  // namespace
}  // namespace slimexx::model
