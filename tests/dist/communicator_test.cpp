#include <gtest/gtest.h>

#include "dist/collective_cases.h"

namespace slimexx::dist {
namespace {

TEST(Communicator, SingleRank) { EXPECT_EQ(check_collectives(*make_single_communicator()), ""); }

TEST(Communicator, ThreadedRanks) {
  for (int size : {1, 2, 3, 4}) {
    run_threaded_ranks(size, [](Communicator& c) { EXPECT_EQ(check_collectives(c), ""); });
  }
}

TEST(SplitRange, CoversInOrder) {
  for (int64_t n : {0, 1, 15, 16, 17, 1000}) {
    for (int parts : {1, 2, 3, 7}) {
      const auto ranges = split_range(n, parts);
      int64_t at = 0;
      for (const auto& r : ranges) {
        EXPECT_EQ(r.begin, at);
        at = r.end;
        if (r.end < n) {
          EXPECT_EQ(r.size() % 16, 0);
        }
      }
      EXPECT_EQ(at, n);
    }
  }
}

}  // namespace
}  // namespace slimexx::dist
