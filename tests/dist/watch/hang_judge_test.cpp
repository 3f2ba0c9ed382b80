#include "dist/watch/hang_judge.h"

#include <gtest/gtest.h>

#include <vector>

namespace slimexx::dist {
namespace {

constexpr uint64_t kGroup = 7, kOther = 8;
using Ranks = std::vector<ActivityView>;

// `size` ranks of one group; each has begun `num_calls` calls on it.
Ranks make_ranks(int64_t size, int64_t num_calls) {
  Ranks ranks(static_cast<size_t>(size));
  for (int64_t r = 0; r < size; ++r)
    ranks[static_cast<size_t>(r)].memberships = {{kGroup, r, num_calls}};
  return ranks;
}

void enter(ActivityView& rank, const char* call, int64_t number, int64_t num_ranks) {
  rank.call = call;
  rank.is_in_call = true;
  rank.group_id = kGroup;
  rank.number = number;
  rank.num_ranks = num_ranks;
  rank.memberships[0].num_calls = number;
}

void enter_with(ActivityView& rank, const char* call, int64_t peer, int64_t num_ranks) {
  enter(rank, call, 0, num_ranks);
  rank.peer = peer;
}

void look_once(Ranks& ranks) {
  for (ActivityView& rank : ranks) ++rank.looks;
}

std::vector<int> waited_for(const Ranks& ranks, size_t rank) {
  return find_waits(ranks)[rank].for_ranks;
}

TEST(HangJudge, CallWaitsForThoseThatHaveNotCome) {
  Ranks ranks = make_ranks(4, 2);
  enter(ranks[0], "barrier", 3, 4);
  enter(ranks[2], "barrier", 3, 4);
  EXPECT_EQ(waited_for(ranks, 0), (std::vector<int>{1, 3}));
  EXPECT_EQ(waited_for(ranks, 1), std::vector<int>{});
  EXPECT_FALSE(find_waits(ranks)[1].moves);
  enter(ranks[1], "barrier", 3, 4);
  EXPECT_EQ(waited_for(ranks, 0), std::vector<int>{3});
}

// A call that all ranks have begun is never judged as hung: the last rank may still have most bytes
// to send while others have left it.
TEST(HangJudge, CallThatAllHaveBegunMoves) {
  Ranks ranks = make_ranks(3, 5);
  enter(ranks[1], "broadcast", 5, 3);
  EXPECT_TRUE(find_waits(ranks)[1].moves);
  enter(ranks[0], "barrier", 6, 3);  // rank 0 has left the broadcast
  EXPECT_TRUE(find_waits(ranks)[1].moves);
  EXPECT_EQ(waited_for(ranks, 0), (std::vector<int>{1, 2}));
}

TEST(HangJudge, OtherCallOfTheSameNumberNeverMeets) {
  Ranks ranks = make_ranks(3, 1);
  enter(ranks[0], "all_reduce", 2, 3);
  enter(ranks[1], "barrier", 2, 3);
  enter(ranks[2], "all_reduce", 2, 3);
  EXPECT_EQ(waited_for(ranks, 0), std::vector<int>{1});
  EXPECT_EQ(waited_for(ranks, 1), (std::vector<int>{0, 2}));
}

TEST(HangJudge, SendMovesWithItsReceiveAlone) {
  Ranks ranks = make_ranks(3, 1);
  enter_with(ranks[0], "send", 2, 3);
  EXPECT_EQ(waited_for(ranks, 0), std::vector<int>{2});
  enter_with(ranks[2], "receive", 1, 3);
  EXPECT_EQ(waited_for(ranks, 0), std::vector<int>{2});
  EXPECT_EQ(waited_for(ranks, 2), std::vector<int>{1});
  enter_with(ranks[2], "send", 0, 3);
  EXPECT_EQ(waited_for(ranks, 0), std::vector<int>{2}) << "both send";
  enter_with(ranks[2], "receive", 0, 3);
  EXPECT_TRUE(find_waits(ranks)[0].moves);
  EXPECT_TRUE(find_waits(ranks)[2].moves);
}

// If a rank no longer lists the group, or the group is on devices, the missing ranks are unknown.
TEST(HangJudge, UnknownGroupsMove) {
  Ranks ranks = make_ranks(3, 1);
  enter(ranks[0], "barrier", 2, 3);
  ranks[1].memberships = {{kOther, 0, 9}};
  EXPECT_TRUE(find_waits(ranks)[0].moves);
  ranks[0].group_id = 0;
  EXPECT_TRUE(find_waits(ranks)[0].moves);
}

class HangClock : public testing::Test {
 protected:
  HangClock() : ranks(make_ranks(2, 1)) { enter(ranks[0], "barrier", 2, 2); }
  std::optional<Hang> look(double limit_s = 3) {
    look_once(ranks);
    return judge.look(ranks, 1, limit_s);
  }
  Ranks ranks;
  HangJudge judge;
};

TEST_F(HangClock, CountsWhileNothingMoves) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(look()) << i;
  const auto hang = look();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->rank, 1);
  EXPECT_EQ(hang->state, "has done nothing for 3 s");
  EXPECT_EQ(hang->others, "; rank 0 waits for it, in phase start, in barrier of 2 ranks (call 2)");
}

TEST_F(HangClock, BeginsAnewWithAnyMove) {
  for (int i = 0; i < 20; ++i) {
    if (i % 3 == 2) ++(i % 2 == 0 ? ranks[1].work : ranks[0].progress);
    EXPECT_FALSE(look()) << i;
  }
  enter(ranks[1], "barrier", 2, 2);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(look()) << i;
}

// The clock stops while a rank does not look: then the rank or its host is stopped, and other
// checks handle that.
TEST_F(HangClock, StandsStillWhileARankDoesNotLook) {
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(look(5)) << i;
  for (int i = 0; i < 60; ++i) {
    ++ranks[0].looks;
    EXPECT_FALSE(judge.look(ranks, 1, 5)) << i;
  }
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(look(5)) << "two of all those seconds count, not more";
  EXPECT_TRUE(look(5));
}

TEST_F(HangClock, EndsForGoodWhenARankHasLeft) {
  ranks[1].has_left = true;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(look()) << i;
}

TEST_F(HangClock, NamesTheOneThatMostWaitFor) {
  ranks = make_ranks(4, 1);
  for (const size_t r : {0u, 1u, 3u}) enter(ranks[r], "all_reduce", 2, 4);
  enter(ranks[2], "barrier", 2, 4);
  for (int i = 0; i < 3; ++i) look();
  const auto hang = look();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->rank, 2);
  EXPECT_EQ(hang->state, "has waited 3 s for ranks 0, 1, 3, which cannot join");
}

}  // namespace
}  // namespace slimexx::dist
