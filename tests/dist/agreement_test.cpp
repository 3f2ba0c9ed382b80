#include "slimexx/dist/agreement.h"

#include <gtest/gtest.h>

#include <atomic>

#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

TEST(Agreement, OneRanksErrorIsEverybodys) {
  std::atomic<int> agreed = 0;
  run_thread_ranks(3, [&](Collective& c) {
    try {
      run_agreed(c, [&] {
        if (c.rank() >= 1)
          throw Error(ErrorCode::kEnvironment, "no space on rank " + std::to_string(c.rank()),
                      "free some", "/disk");
      });
      ADD_FAILURE() << "rank " << c.rank() << " goes on";
    } catch (const AgreedError& e) {
      EXPECT_EQ(e.code(), ErrorCode::kEnvironment);
      EXPECT_EQ(e.message(), "rank 1 of 3 failed: no space on rank 1");
      EXPECT_EQ(e.hint(), "free some");
      EXPECT_EQ(e.where(), "/disk");
      ++agreed;
    }
    c.barrier();  // later calls may be collective
  });
  EXPECT_EQ(agreed, 3);
}

TEST(Agreement, NothingHappensWhereNobodyFails) {
  std::atomic<int> ran = 0;
  run_thread_ranks(2, [&](Collective& c) { run_agreed(c, [&] { ++ran; }); });
  EXPECT_EQ(ran, 2);
}

TEST(Agreement, RankAloneKeepsItsWords) {
  Collective alone;
  try {
    run_agreed(alone, [] { throw Error(ErrorCode::kRun, "broken"); });
    FAIL();
  } catch (const AgreedError& e) {
    EXPECT_EQ(e.message(), "broken");
  }
}

}  // namespace
}  // namespace slimexx::dist
