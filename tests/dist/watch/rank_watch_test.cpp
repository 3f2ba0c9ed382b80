#include "slimexx/dist/rank_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "dist/watch/forked_ranks.h"
#include "dist/watch/watched_run.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

constexpr ShortName kBarrierCall{"barrier"}, kWorld{"world"}, kTest{"the test"};

// Rank 1 does work that may last, and the others wait for it in a barrier, until the test sets
// is_done.
void work_or_wait(Collective& ranks, ForkedState& state) {
  const PhaseScope phase("generate");
  const OutsideWaitScope outside(kTest);
  std::optional<CallScope> call;
  if (ranks.rank() != 1) call.emplace(kBarrierCall, kWorld, ranks.size(), 0);
  ++state.num_ready;
  while (!state.is_done) sleep_s(0.005);
}

RankWork watched_wait(WatchedRun run) { return watched(std::move(run), work_or_wait); }

class RankWatchTest : public testing::Test {
 protected:
  RankWatchTest() : folder_(testing::TempDir() + fmt::format("rank_watch_{}", ::getpid())) {}
  ~RankWatchTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string folder() const { return folder_ + "/ranks"; }

  // Expects that the other ranks end with the status of kRun (4) and that one of them reports the
  // cause.
  static void expect_cause(ForkedRanks& ranks, int size, int rank, const std::string& what,
                           const std::string& call) {
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      EXPECT_EQ(ranks.wait(r, kSoon), exit_status(ErrorCode::kRun)) << "rank " << r;
    }
    const ForkedState& state = ranks.state();
    EXPECT_EQ(state.cause_rank, rank) << state.what;
    EXPECT_STREQ(state.phase, "generate");
    EXPECT_EQ(state.call, call);
    const std::string place = fmt::format("(host {}, process ", host_name());
    for (const std::string& part :
         {fmt::format("rank {} {}", rank, what), place, std::string("in phase generate, in ")})
      EXPECT_NE(std::string(state.what).find(part), std::string::npos) << part << "\n"
                                                                       << state.what;
  }
  static void expect_end(ForkedRanks& ranks, int size) {
    ranks.state().is_done = true;
    for (int r = 0; r < size; ++r) EXPECT_EQ(ranks.wait(r, kSoon), 0) << "rank " << r;
    EXPECT_EQ(ranks.state().num_told, 0) << ranks.state().what;
  }

 private:
  std::string folder_;
};

TEST_F(RankWatchTest, OneThatIsKilledIsNamed) {
  for (const int victim : {0, 1, 2}) {
    SCOPED_TRACE(victim);
    ForkedRanks ranks(3, watched_wait({}));
    ASSERT_TRUE(ranks.wait_until_ready());
    ranks.signal(victim, SIGKILL);
    expect_cause(ranks, 3, victim, "died", victim == 1 ? "" : "barrier");
  }
}

TEST_F(RankWatchTest, OneThatExitsWithoutAWordIsNamed) {
  ForkedRanks ranks(2, watched({}, [](Collective& all, ForkedState& state) {
                      if (all.rank() != 1) return work_or_wait(all, state);
                      const PhaseScope phase("generate");
                      ++state.num_ready;
                      ::_exit(3);
                    }));
  expect_cause(ranks, 2, 1, "died", "");
}

TEST_F(RankWatchTest, OneThatIsStoppedIsNamedAfterTheLimit) {
  for (const int victim : {0, 2}) {
    SCOPED_TRACE(victim);
    ForkedRanks ranks(3, watched_wait({.options = {.warn_s = 0.3, .limit_s = 1}}));
    ASSERT_TRUE(ranks.wait_until_ready());
    const auto start = std::chrono::steady_clock::now();
    ranks.signal(victim, SIGSTOP);
    expect_cause(ranks, 3, victim, "has been stopped for 1 s", "barrier");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_GT(took.count(), 0.9);
  }
}

TEST_F(RankWatchTest, OneThatIsStoppedForAWhileIsWaitedFor) {
  ForkedRanks ranks(2, watched_wait({.options = {.warn_s = 0.2, .limit_s = 60}}));
  ASSERT_TRUE(ranks.wait_until_ready());
  ranks.signal(1, SIGSTOP);
  sleep_s(1);
  ranks.signal(1, SIGCONT);
  sleep_s(0.5);
  expect_end(ranks, 2);
}

// A rank that was stopped must not count the time of its own stop against others; here all ranks
// are stopped at once.
TEST_F(RankWatchTest, WholeRunThatIsStoppedGoesOn) {
  ForkedRanks ranks(3, watched_wait({.options = {.limit_s = 1.5}, .folder = folder()}));
  ASSERT_TRUE(ranks.wait_until_ready());
  for (const int rank : {0, 1, 2}) ranks.signal(rank, SIGSTOP);
  sleep_s(3);
  for (const int rank : {2, 1, 0}) {  // the first to continue finds the others stopped
    ranks.signal(rank, SIGCONT);
    sleep_s(0.4);
  }
  sleep_s(1);
  expect_end(ranks, 3);
}

// A rank that has left is not the cause: it reported its own failure, or has nothing more to do.
TEST_F(RankWatchTest, OneThatLeavesIsNoCause) {
  ForkedRanks ranks(3, watched({.folder = folder()}, [](Collective& all, ForkedState& state) {
                      if (all.rank() == 1) return void(++state.num_ready);
                      work_or_wait(all, state);
                    }));
  ASSERT_TRUE(ranks.wait_until_ready());
  EXPECT_EQ(ranks.wait(1, kSoon), 0);
  sleep_s(1.5);
  ranks.state().is_done = true;
  for (const int rank : {0, 2}) EXPECT_EQ(ranks.wait(rank, kSoon), 0);
  EXPECT_EQ(ranks.state().num_told, 0) << ranks.state().what;
  EXPECT_FALSE(std::filesystem::exists(folder())) << "records are left";
}

TEST_F(RankWatchTest, OneThatTheLauncherEndsIsNoCause) {
  ForkedRanks ranks(2, watched_wait({}));
  ASSERT_TRUE(ranks.wait_until_ready());
  ranks.state().launcher_ends = true;
  sleep_s(1.2);
  ranks.signal(1, SIGKILL);
  EXPECT_EQ(ranks.wait(1, kSoon), 128 + SIGKILL);
  sleep_s(0.5);
  ranks.state().is_done = true;
  EXPECT_EQ(ranks.wait(0, kSoon), 0);
  EXPECT_EQ(ranks.state().num_told, 0) << ranks.state().what;
}

// When one rank is killed, the launcher ends the others at once; the killed rank is still the
// cause.
TEST_F(RankWatchTest, OneThatTheLauncherSawFirstIsNamed) {
  ForkedRanks ranks(2, watched_wait({}));
  ASSERT_TRUE(ranks.wait_until_ready());
  ranks.state().launcher_ends = true;
  ranks.signal(1, SIGKILL);
  expect_cause(ranks, 2, 1, "died", "");
}

// The report shows the rank's last activity, not that of the last look. The rank kills itself
// inside a known phase: a signal from outside could arrive between two phases.
TEST_F(RankWatchTest, PhaseIsThatOfTheLastMoment) {
  for (const int last : {400, 477, 554, 631, 708}) {
    ForkedRanks ranks(2, watched({}, [last](Collective& all, ForkedState& state) {
                        if (all.rank() == 0) return work_or_wait(all, state);
                        ++state.num_ready;
                        for (int i = 0; !state.is_done; ++i) {
                          const PhaseScope phase(fmt::format("p{}", i));
                          if (i == last) ::raise(SIGKILL);
                          ::usleep(200);
                        }
                      }));
    ASSERT_TRUE(ranks.wait_until_ready());
    ASSERT_EQ(ranks.wait(0, kSoon), exit_status(ErrorCode::kRun));
    EXPECT_EQ(ranks.state().phase, fmt::format("p{}", last));
  }
}

// All ranks wait, but one of them is not in a collective call.
TEST_F(RankWatchTest, HangEndsAfterItsOwnLimit) {
  ForkedRanks ranks(3, watched_wait({.options = {.wait_warn_s = 1, .wait_limit_s = 3}}));
  ASSERT_TRUE(ranks.wait_until_ready());
  EXPECT_EQ(ranks.wait(0, 3 + kSoon), exit_status(ErrorCode::kRun));
  EXPECT_EQ(ranks.state().cause_rank, 1);
  EXPECT_NE(std::string(ranks.state().what)
                .find("rank 1 hangs, and no rank has made progress for 3 s (host "),
            std::string::npos)
      << ranks.state().what;
}

TEST_F(RankWatchTest, SlowWorkThatGoesOnIsNoHang) {
  ForkedRanks ranks(2, watched({.options = {.wait_warn_s = 1, .wait_limit_s = 2}},
                               [](Collective& all, ForkedState& state) {
                                 if (all.rank() != 1) return work_or_wait(all, state);
                                 const PhaseScope phase("reward");
                                 ++state.num_ready;
                                 for (; !state.is_done; sleep_s(0.3)) note_progress();
                               }));
  ASSERT_TRUE(ranks.wait_until_ready());
  sleep_s(5);
  expect_end(ranks, 2);
}

// Ranks of other hosts are known from their records only. Rank 0 watches the others, and the first
// rank of another host watches rank 0.
TEST_F(RankWatchTest, OneThatDiesOnAnotherHostIsNamed) {
  for (const int victim : {0, 1, 2}) {
    SCOPED_TRACE(victim);
    ForkedRanks ranks(3, watched_wait({.are_hosts = true, .folder = folder()}));
    ASSERT_TRUE(ranks.wait_until_ready());
    sleep_s(1.5);  // until the victim's record has been read
    ranks.signal(victim, SIGKILL);
    const int judge = victim == 0 ? 1 : 0;
    EXPECT_EQ(ranks.wait(judge, kSoon), exit_status(ErrorCode::kRun));
    EXPECT_EQ(ranks.state().cause_rank, victim) << ranks.state().what;
    EXPECT_STREQ(ranks.state().phase, "generate");
    EXPECT_STREQ(ranks.state().call, victim == 1 ? "" : "barrier");
  }
}

TEST_F(RankWatchTest, HostThatIsSilentIsNamedAfterItsLimit) {
  ForkedRanks ranks(2, watched_wait({.options = {.limit_s = 1, .host_limit_s = 3},
                                     .are_hosts = true,
                                     .folder = folder()}));
  ASSERT_TRUE(ranks.wait_until_ready());
  sleep_s(1.5);
  ranks.signal(1, SIGSTOP);
  EXPECT_EQ(ranks.wait(0, 2), -1) << "ended too early";
  EXPECT_EQ(ranks.wait(0, kSoon), exit_status(ErrorCode::kRun));
  EXPECT_NE(std::string(ranks.state().what).find("rank 1 has shown no sign of life for 3 s"),
            std::string::npos)
      << ranks.state().what;
}

// A file server may pause, so a silent rank counts as lost only while others wait for it.
TEST_F(RankWatchTest, HostThatIsSilentWhileOthersWorkIsLeftAlone) {
  ForkedRanks ranks(2,
                    watched({.options = {.host_limit_s = 2}, .are_hosts = true, .folder = folder()},
                            [](Collective& all, ForkedState& state) {
                              if (all.rank() != 0) return work_or_wait(all, state);
                              ++state.num_ready;
                              for (; !state.is_done; sleep_s(0.05)) note_progress();
                            }));
  ASSERT_TRUE(ranks.wait_until_ready());
  sleep_s(1.5);
  ranks.signal(1, SIGSTOP);
  sleep_s(5);
  ranks.signal(1, SIGCONT);
  expect_end(ranks, 2);
}

// Without a folder the state of ranks on other hosts is unknown: they may be at work.
TEST_F(RankWatchTest, HostsWithoutRecordsAreNoHang) {
  ForkedRanks ranks(
      2, watched_wait({.options = {.wait_warn_s = 1, .wait_limit_s = 2}, .are_hosts = true}));
  ASSERT_TRUE(ranks.wait_until_ready());
  sleep_s(3.5);
  expect_end(ranks, 2);
}

TEST_F(RankWatchTest, RecordsSayWhatRanksDo) {
  ForkedRanks ranks(2, watched_wait({.folder = folder()}));
  ASSERT_TRUE(ranks.wait_until_ready());
  std::string text;
  for (int i = 0; i < 400 && text.find("\"phase\":\"generate\"") == std::string::npos; ++i) {
    sleep_s(0.01);
    std::ifstream in(folder() + "/rank_000");
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const char* part : {"\"rank\":0", "\"phase\":\"generate\"", "\"name\":\"barrier\"",
                           "\"group\":\"world\"", "\"ranks\":2", "\"now\":true", "\"locked\":true"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  expect_end(ranks, 2);
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(RankWatchTest, RanksThatAreThreadsNeedNoFolder) {
  run_thread_ranks(3, [&](Collective& ranks) {
    RankWatch watch(
        ranks, {}, [](const FirstCause&) { return true; }, [] { return false; });
    watch.show_records(ranks, folder());
    watch.look_now();
    EXPECT_FALSE(std::filesystem::exists(folder()));
    ranks.barrier();
  });
}

}  // namespace
}  // namespace slimexx::dist
