#include "slimexx/dist/collective.h"

#include <gtest/gtest.h>

#include "dist/collective_contract.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/groups.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

TEST(Collective, OneRank) {
  Collective one;
  EXPECT_EQ(check_collective(one, {}), "");
  EXPECT_EQ(check_host(one), "");
  EXPECT_EQ(check_collective(groups_of_one().tp, {}), "");
}

TEST(Collective, ThreadRanks) {
  for (int size : {2, 3, 5}) {
    run_thread_ranks(size, [](Collective& c) {
      EXPECT_EQ(check_collective(c, {}), "");
      EXPECT_EQ(check_host(c), "");
    });
  }
}

// A group does not wait for groups of other ranks.
TEST(Collective, PartsDoNotWaitForEachOther) {
  run_thread_ranks(4, [](Collective& c) {
    const auto part = c.split(c.rank() / 2, 0);
    for (int i = 0; i <= c.rank() / 2 * 5; ++i) part->barrier();
    if (c.rank() / 2 == 0)
      c.send({}, tensor::Tensor(&c, tensor::DType::kU8, {}, {1}), c.rank() + 2);
    char got = 0;
    if (c.rank() / 2 == 1)
      c.receive({}, tensor::Tensor(&got, tensor::DType::kU8, {}, {1}), c.rank() - 2);
    c.barrier();
  });
}

// In the world and in a split group, all waits end when one rank fails.
TEST(Collective, FailureOfOneThreadEndsAll) {
  for (const bool in_part : {false, true}) {
    try {
      run_thread_ranks(4, [&](Collective& c) {
        const auto part = c.split(c.rank() % 2, 0);
        if (c.rank() == 2) throw Error(ErrorCode::kInput, "broken", "", "rank 2");
        try {
          if (in_part && c.rank() % 2 == 0) part->barrier();
          c.barrier();
          ADD_FAILURE() << "rank " << c.rank() << " goes on";
        } catch (const Error& e) {
          EXPECT_EQ(e.message(), "rank 2 failed");
          throw;
        }
      });
      ADD_FAILURE() << "nothing is thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.where(), "rank 2");  // the first failure, not one that followed from it
    }
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
