#include "slimexx/model/expert_placement.h"

#include <gtest/gtest.h>

#include <set>

namespace slimexx::model {
namespace {

const ExpertPlacement kPlacements[] = {{64, 64, 8}, {64, 80, 24}, {5, 7, 3}, {8, 8, 3},
                                       {8, 17, 6},  {4, 12, 3},   {8, 9, 9}, {128, 144, 24}};

TEST(ExpertPlacement, IsTheStatedOne) {
  const ExpertPlacement p{5, 7, 3};
  EXPECT_EQ(p.held_by(0), (dist::Range{0, 3}));
  EXPECT_EQ(p.held_by(1), (dist::Range{3, 5}));
  EXPECT_EQ(p.held_by(2), (dist::Range{5, 7}));
  EXPECT_EQ(p.copies_for(0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(p.copies_for(1), (std::vector<int32_t>{5, 6, 2, 3, 4}));
  EXPECT_EQ(p.copies_for(2), p.copies_for(0));
}

TEST(ExpertPlacement, EightyCopiesOnTwentyFourRanks) {
  const ExpertPlacement p{64, 80, 24};
  for (int64_t rank = 0; rank < 24; ++rank)
    EXPECT_EQ(p.held_by(rank).size(), rank < 8 ? 4 : 3) << "rank " << rank;
}

TEST(ExpertPlacement, RanksHoldEveryCopyOnceAndNoExpertTwice) {
  for (const ExpertPlacement& p : kPlacements) {
    SCOPED_TRACE(testing::Message()
                 << p.num_copies << " copies of " << p.num_experts << " on " << p.num_ranks);
    EXPECT_TRUE(p.is_legal());
    int64_t next = 0;
    for (int64_t rank = 0; rank < p.num_ranks; ++rank) {
      const dist::Range held = p.held_by(rank);
      EXPECT_EQ(held.begin, next);
      next = held.end;
      EXPECT_GE(held.size(), p.num_copies / p.num_ranks);
      EXPECT_LE(held.size(), p.most_held());
      std::set<int64_t> experts;
      for (int64_t copy = held.begin; copy < held.end; ++copy) experts.insert(p.expert_of(copy));
      EXPECT_EQ(static_cast<int64_t>(experts.size()), held.size()) << "rank " << rank;
    }
    EXPECT_EQ(next, p.num_copies);
  }
}

// Ranks alternate between copies, so that the numbers of ranks that the copies of an expert serve
// differ by at most one.
TEST(ExpertPlacement, RanksShareTheCopiesOfAnExpert) {
  for (const ExpertPlacement& p : kPlacements) {
    std::vector<int64_t> senders(static_cast<size_t>(p.num_copies));
    for (int64_t rank = 0; rank < p.num_ranks; ++rank) {
      const std::vector<int32_t> copies = p.copies_for(rank);
      ASSERT_EQ(std::ssize(copies), p.num_experts);
      for (int64_t expert = 0; expert < p.num_experts; ++expert) {
        const int32_t copy = copies[static_cast<size_t>(expert)];
        ASSERT_TRUE(copy >= 0 && copy < p.num_copies) << copy;
        EXPECT_EQ(p.expert_of(copy), expert);
        ++senders[static_cast<size_t>(copy)];
      }
    }
    for (int64_t copy = 0; copy < p.num_copies; ++copy) {
      int64_t copies = 0;
      for (int64_t other = 0; other < p.num_copies; ++other)
        copies += p.expert_of(other) == p.expert_of(copy) ? 1 : 0;
      const int64_t n = senders[static_cast<size_t>(copy)];
      EXPECT_TRUE(n == p.num_ranks / copies || n == (p.num_ranks + copies - 1) / copies)
          << "copy " << copy << " of " << p.num_copies << " has " << n << " ranks";
    }
  }
}

TEST(ExpertPlacement, RanksWithoutExpertsAndExpertsTwiceOnARankAreIllegal) {
  EXPECT_FALSE((ExpertPlacement{8, 8, 16}.is_legal()));
  EXPECT_TRUE((ExpertPlacement{8, 16, 16}.is_legal()));
  EXPECT_TRUE((ExpertPlacement{8, 24, 3}.is_legal()));
  EXPECT_FALSE((ExpertPlacement{8, 25, 3}.is_legal()));
  EXPECT_FALSE((ExpertPlacement{8, 7, 2}.is_legal()));
}

}  // namespace
}  // namespace slimexx::model
