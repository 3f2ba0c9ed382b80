#include "slimexx/dist/make_once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "dist/watch/forked_ranks.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

TEST(MakeOnce, ThreadsShareOne) {
  for (const int size : {1, 2, 5}) {
    std::atomic<int> num_made{0};
    std::vector<const std::string*> seen(static_cast<size_t>(size));
    std::vector<std::shared_ptr<const std::string>> kept(seen.size());
    run_thread_ranks(size, [&](Collective& ranks) {
      EXPECT_TRUE(are_in_one_process(ranks));
      const auto rank = static_cast<size_t>(ranks.rank());
      kept[rank] = make_once(ranks, [&] {
        ++num_made;
        return "made by " + std::to_string(ranks.rank());
      });
      seen[rank] = kept[rank].get();
    });
    EXPECT_EQ(num_made, 1);
    EXPECT_EQ(kept[0].use_count(), size);
    for (const std::string* value : seen) {
      EXPECT_EQ(value, seen[0]);
      EXPECT_EQ(*value, "made by 0");
    }
  }
}

TEST(MakeOnce, GroupsOfThreadsHaveOneEach) {
  std::vector<std::string> seen(4);
  run_thread_ranks(4, [&](Collective& ranks) {
    const auto half = ranks.split(ranks.rank() % 2, ranks.rank());
    seen[static_cast<size_t>(ranks.rank())] =
        *make_once(*half, [&] { return std::to_string(ranks.rank()); });
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"0", "1", "0", "1"}));
}

TEST(MakeOnce, AllThrowWhatTheFirstThrew) {
  std::atomic<int> num_told{0};
  run_thread_ranks(3, [&](Collective& ranks) {
    try {
      make_once(ranks, [&]() -> int {
        throw Error(ErrorCode::kInput, "no such folder", "look again", "models/x");
      });
    } catch (const Error& error) {
      num_told += error.message() == "no such folder" && error.where() == "models/x" ? 1 : 0;
    }
    ranks.barrier();  // later calls may be collective
  });
  EXPECT_EQ(num_told, 3);
}

TEST(MakeOnce, ProcessesMakeTheirOwn) {
  ForkedRanks ranks(3, [](Collective& all, ForkedState& state) {
    ++state.num_ready;
    const auto made = make_once(all, [&] { return all.rank(); });
    if (!are_in_one_process(all) && *made == all.rank()) ++state.num_told;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.wait(rank, 10), 0);
  EXPECT_EQ(ranks.state().num_told, 3);
}

}  // namespace
}  // namespace slimexx::dist
