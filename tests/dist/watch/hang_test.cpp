// Ranks that are alive but make no progress: the run ends, and the report names the ranks that wait
// for each other. A rank that works, or waits for something outside the job, does not end the run.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "dist/watch/forked_ranks.h"
#include "dist/watch/watched_run.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

constexpr double kLimit = 1.5;  // seconds
const RankWatchOptions kOptions{.hang_limit_s = kLimit};
constexpr ShortName kService{"a service"};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void compute_for(double seconds) {
  const auto start = Clock::now();
  while (seconds_since(start) < seconds) {
  }
}

void receive_from(Collective& ranks, int from) {
  int64_t value = 0;
  ranks.receive({}, tensor::Tensor(&value, tensor::DType::kI64, {}, {1}), from);
}

// Rank 1 does `work`; the others wait for it in a barrier.
RankWork one_is_late(std::function<void(ForkedState&)> work) {
  return [work = std::move(work)](Collective& ranks, ForkedState& state) {
    const PhaseScope phase("generate");
    ++state.num_ready;
    if (ranks.rank() == 1) work(state);
    ranks.barrier();
  };
}

// Runs all ranks as threads of the first process.
RankWork as_threads(int size, RankWork work) {
  return [size, work = std::move(work)](Collective&, ForkedState& state) {
    run_thread_ranks(size, [&](Collective& ranks) {
      ranks.set_name("world");
      watched({.options = kOptions}, work)(ranks, state);
    });
  };
}

void expect_end(ForkedRanks& ranks, int size, double within_s) {
  for (int r = 0; r < size; ++r) EXPECT_EQ(ranks.wait(r, within_s), 0) << "rank " << r;
  EXPECT_EQ(ranks.state().num_told, 0) << ranks.state().what;
}

// Expects that rank 0, the only judge, ends the run after the limit, and that the others then see
// its death.
void expect_hang(ForkedRanks& ranks, int size, int culprit, const std::string& call,
                 const std::vector<std::string>& words) {
  const auto start = Clock::now();
  for (int r = 0; r < size; ++r)
    EXPECT_EQ(ranks.wait(r, kLimit + kSoon), exit_status(ErrorCode::kRun)) << "rank " << r;
  EXPECT_GT(seconds_since(start), kLimit - 0.5);
  const ForkedState& state = ranks.state();
  EXPECT_EQ(state.cause_rank, culprit) << state.what;
  EXPECT_STREQ(state.phase, "generate");
  EXPECT_EQ(state.call, call);
  for (const std::string& part : words)
    EXPECT_NE(std::string(state.what).find(part), std::string::npos) << part << "\n" << state.what;
}

TEST(Hang, RankAsleepInNoCallIsNamed) {
  ForkedRanks ranks(3,
                    watched({.options = kOptions}, one_is_late([](ForkedState&) { sleep_s(60); })));
  ASSERT_TRUE(ranks.wait_until_ready());
  expect_hang(ranks, 3, 1, "",
              {"rank 1 has done nothing for ", "(host " + host_name(),
               "in phase generate, in no collective call",
               "; rank 0 waits for it, in phase generate, in barrier of 3 ranks (call "});
}

// Rank 1 waits for a message that rank 0 never sends.
TEST(Hang, CallsThatDoNotMeetAreNamed) {
  ForkedRanks ranks(3, watched({.options = kOptions}, [](Collective& all, ForkedState& state) {
                      const PhaseScope phase("generate");
                      ++state.num_ready;
                      if (all.rank() == 1) receive_from(all, 0);
                      all.barrier();
                    }));
  ASSERT_TRUE(ranks.wait_until_ready());
  expect_hang(
      ranks, 3, 1, "receive",
      {"rank 1 has waited ", " s for rank 0, which cannot join", "in receive of 3 ranks, 8 bytes",
       "; rank 0 waits for it, in phase generate, in barrier of 3 ranks (call "});
}

// Ranks form groups of two. The first pair waits in the barrier of all ranks; in the second pair,
// rank 2 waits for rank 3 in a barrier of the pair, and rank 3 is in the barrier of all.
TEST(Hang, ThreadRanksInCallsOfDifferentGroupsAreNamed) {
  ForkedRanks ranks(1, as_threads(4, [](Collective& all, ForkedState&) {
                      const PhaseScope phase("generate");
                      const auto pair = all.split(all.rank() / 2, all.rank());
                      pair->set_name("pair");
                      if (all.rank() == 2) pair->barrier();
                      all.barrier();
                    }));
  expect_hang(ranks, 1, 2, "barrier",
              {"rank 2 has waited ", " s for rank 3, which cannot join",
               "in barrier of 2 ranks (pair, call 1)",
               "; rank 0 waits for it, in phase generate, in barrier of 4 ranks (world, call "});
}

TEST(Hang, ThreadRankAsleepIsNamed) {
  ForkedRanks ranks(1, as_threads(3, one_is_late([](ForkedState&) { sleep_s(60); })));
  expect_hang(ranks, 1, 1, "", {"rank 1 has done nothing for "});
}

TEST(Hang, RankThatComputesIsWaitedFor) {
  const RankWork work = one_is_late([](ForkedState&) { compute_for(3 * kLimit); });
  ForkedRanks processes(3, watched({.options = kOptions}, work));
  expect_end(processes, 3, 3 * kLimit + kSoon);
  ForkedRanks threads(1, as_threads(3, work));
  expect_end(threads, 1, 3 * kLimit + kSoon);
}

TEST(Hang, RankThatWaitsOutsideIsWaitedFor) {
  const RankWork work = one_is_late([](ForkedState&) {
    const OutsideWaitScope wait(kService);
    sleep_s(3 * kLimit);
  });
  ForkedRanks processes(3, watched({.options = kOptions}, work));
  expect_end(processes, 3, 3 * kLimit + kSoon);
  ForkedRanks threads(1, as_threads(3, work));
  expect_end(threads, 1, 3 * kLimit + kSoon);
}

// The work is done on a helper thread, like a thread pool or a checkpoint writer.
TEST(Hang, RankThatWaitsForItsOwnThreadIsWaitedFor) {
  const RankWork work = one_is_late([](ForkedState&) {
    std::thread([] {
      compute_for(1.5 * kLimit);
      const OutsideWaitScope wait(kService);
      sleep_s(1.5 * kLimit);
    }).join();
  });
  ForkedRanks ranks(3, watched({.options = kOptions}, work));
  expect_end(ranks, 3, 3 * kLimit + kSoon);
}

TEST(Hang, NobodyIsJudgedWithoutALimit) {
  ForkedRanks ranks(2, watched({.options = {.hang_limit_s = 0}},
                               one_is_late([](ForkedState&) { sleep_s(2 * kLimit); })));
  expect_end(ranks, 2, 2 * kLimit + kSoon);
}

// With ranks on other hosts, known from their records only, the limit for silent hosts applies.
TEST(Hang, RanksOfOtherHostsHaveMoreTime) {
  const std::string folder = testing::TempDir() + fmt::format("hang_{}", ::getpid());
  RankWatchOptions options = kOptions;
  options.host_limit_s = 4 * kLimit;
  ForkedRanks ranks(2, watched({.options = options, .are_hosts = true, .folder = folder + "/ranks"},
                               one_is_late([](ForkedState&) { sleep_s(60); })));
  ASSERT_TRUE(ranks.wait_until_ready());
  EXPECT_EQ(ranks.wait(0, 3 * kLimit), -1) << "ended too early";
  expect_hang(ranks, 2, 1, "",
              {"rank 1 has done nothing for ", "; rank 0 waits for it, in phase "});
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace
}  // namespace slimexx::dist
