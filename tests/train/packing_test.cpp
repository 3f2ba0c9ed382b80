#include "slimexx/train/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/train/schedule.h"

namespace slimexx::train {
namespace {

TEST(FirstFit, FillsTheFirstBinWithRoom) {
  const std::vector<int64_t> lengths = {15, 7, 7, 7, 3, 2};
  EXPECT_EQ(pack_first_fit(lengths, 10), (Bins{{0}, {1, 4}, {2, 5}, {3}}));
  EXPECT_EQ(pack_first_fit({}, 10), Bins{});
}

TEST(KarmarkarKarp, WorkedExample) {
  // 1..8 into two sets of four: 2+3+5+8 and 1+4+6+7, both 18.
  const std::vector<double> weights = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(partition_karmarkar_karp(weights, 2, true), (Bins{{1, 2, 4, 7}, {0, 3, 5, 6}}));
}

TEST(KarmarkarKarp, CoversEveryItemOnceAndBalances) {
  PhiloxStream random(3, 0);
  for (int trial = 0; trial < 50; ++trial) {
    const auto n = static_cast<int64_t>(1 + random.next_below(60)),
               k = static_cast<int64_t>(1 + random.next_below(6));
    std::vector<double> weights;
    for (int64_t i = 0; i < n; ++i)
      weights.push_back(static_cast<double>(1 + random.next_below(1000)));
    const Bins bins = partition_karmarkar_karp(weights, k, false);
    std::vector<int> seen(static_cast<size_t>(n));
    double heaviest = 0;
    for (const auto& bin : bins) {
      double sum = 0;
      for (int64_t i : bin) {
        ++seen[static_cast<size_t>(i)];
        sum += weights[static_cast<size_t>(i)];
      }
      heaviest = std::max(heaviest, sum);
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(n), 1)) << "trial " << trial;
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    EXPECT_LE(heaviest, total / static_cast<double>(k) + 1000) << "trial " << trial;
  }
}

TEST(Microbatches, DoNotDependOnTheNumberOfRanks) {
  const std::vector<double> costs = {5, 3, 8, 1, 1};
  for (int ranks : {1, 2, 4, 7}) {
    for (bool balance : {false, true}) {
      std::vector<int> seen(costs.size());
      for (const auto& bin : assign_microbatches(costs, ranks, balance)) {
        for (int64_t m : bin) ++seen[static_cast<size_t>(m)];
      }
      EXPECT_EQ(seen, std::vector<int>(costs.size(), 1));
    }
  }
}

TEST(EvenOut, EmptyMicrobatchesComeFirst) {
  Bins microbatches = {{0}, {1, 2}, {3}, {4}}, by_rank = {{0, 2, 3}, {1}, {}};
  even_out(microbatches, by_rank);
  EXPECT_EQ(by_rank, (Bins{{0, 2, 3}, {4, 5, 1}, {6, 7, 8}}));
  EXPECT_EQ(microbatches, (Bins{{0}, {1, 2}, {3}, {4}, {}, {}, {}, {}, {}}));
  // Of no samples every rank runs one all the same.
  Bins none, two_ranks(2);
  even_out(none, two_ranks);
  EXPECT_EQ(two_ranks, (Bins{{0}, {1}}));
}

TEST(Schedule, OneStageAlternatesAndPipelinesDrain) {
  using enum ScheduleKind;
  EXPECT_EQ(
      make_schedule(0, 1, 2),
      (std::vector<ScheduleOp>{{kForward, 0}, {kBackward, 0}, {kForward, 1}, {kBackward, 1}}));
  EXPECT_EQ(make_schedule(0, 3, 3), (std::vector<ScheduleOp>{{kForward, 0},
                                                             {kForward, 1},
                                                             {kForward, 2},
                                                             {kBackward, 0},
                                                             {kBackward, 1},
                                                             {kBackward, 2}}));
}

// Runs the stages beside one another, each in its own order, until none can go on. A forward waits
// for the stage before, a backward for the stage behind and for its own forward. `waits[s]`: the
// operation at which stage s stands; all its operations where it came through.
std::vector<size_t> run_schedules(const std::vector<std::vector<ScheduleOp>>& stages) {
  using Done = std::vector<std::set<int64_t>>;
  Done forward(stages.size()), backward(stages.size());
  std::vector<size_t> waits(stages.size(), 0);
  const auto can_run = [&](size_t s, const ScheduleOp& op) {
    const int64_t m = op.microbatch;
    if (op.kind == ScheduleKind::kForward) return s == 0 || forward[s - 1].contains(m);
    return forward[s].contains(m) && (s + 1 == stages.size() || backward[s + 1].contains(m));
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (; waits[s] < stages[s].size() && can_run(s, stages[s][waits[s]]); ++waits[s]) {
        const ScheduleOp& op = stages[s][waits[s]];
        auto& done = op.kind == ScheduleKind::kForward ? forward[s] : backward[s];
        EXPECT_TRUE(done.insert(op.microbatch).second) << "stage " << s << " does one again";
        moved = true;
      }
    }
  }
  return waits;
}

// The most microbatches of which a stage keeps activations.
int64_t most_in_flight(const std::vector<ScheduleOp>& ops) {
  int64_t now = 0, most = 0;
  for (const ScheduleOp& op : ops) {
    now += op.kind == ScheduleKind::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

TEST(Schedule, EveryStageComesThrough) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (const int64_t n : {1, 2, 3, 5, 6, 13}) {
      std::vector<std::vector<ScheduleOp>> ops;
      for (int s = 0; s < stages; ++s) {
        ops.push_back(make_schedule(s, stages, n));
        EXPECT_LE(most_in_flight(ops.back()), std::min<int64_t>(stages - s, n));
      }
      EXPECT_EQ(run_schedules(ops),
                std::vector<size_t>(static_cast<size_t>(stages), static_cast<size_t>(2 * n)))
          << stages << " stages, " << n << " microbatches";
    }
  }
}

// The check above sees a deadlock: stage 0 wants a backward before the forward that stage 1 needs
// first.
TEST(Schedule, ADeadlockWouldBeSeen) {
  using enum ScheduleKind;
  EXPECT_EQ(run_schedules({{{kForward, 0}, {kBackward, 0}, {kForward, 1}, {kBackward, 1}},
                           {{kForward, 0}, {kForward, 1}, {kBackward, 0}, {kBackward, 1}}}),
            (std::vector<size_t>{1, 1}));
}

}  // namespace
}  // namespace slimexx::train
