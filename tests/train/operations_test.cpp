#include "train/operations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace slimexx::train {
namespace {

TEST(Operations, OneStageAlternatesAndPipelinesDrain) {
  using enum OperationKind;
  EXPECT_EQ(list_operations(0, 1, 2),
            (std::vector<Operation>{{kForward, 0}, {kBackward, 0}, {kForward, 1}, {kBackward, 1}}));
  EXPECT_EQ(list_operations(0, 3, 3), (std::vector<Operation>{{kForward, 0, 0},
                                                              {kForward, 1, 1},
                                                              {kForward, 2, 2},
                                                              {kBackward, 0, 0},
                                                              {kBackward, 1, 1},
                                                              {kBackward, 2, 2}}));
  EXPECT_EQ(list_operations(1, 3, 3), (std::vector<Operation>{{kForward, 0, 0},
                                                              {kForward, 1, 1},
                                                              {kBackward, 0, 0},
                                                              {kForward, 2, 0},
                                                              {kBackward, 1, 1},
                                                              {kBackward, 2, 0}}));
}

// Runs the stages beside one another, each in its own order, until none can go on. A forward waits
// for the stage before, a backward for the stage behind and for its own forward. `waits[s]`: the
// operation at which stage s stands; all its operations where it came through.
std::vector<size_t> run_stages(const std::vector<std::vector<Operation>>& stages) {
  using Done = std::vector<std::set<int64_t>>;
  Done forward(stages.size()), backward(stages.size());
  std::vector<size_t> waits(stages.size(), 0);
  const auto can_run = [&](size_t s, const Operation& op) {
    const int64_t m = op.microbatch;
    if (op.kind == OperationKind::kForward) return s == 0 || forward[s - 1].contains(m);
    return forward[s].contains(m) && (s + 1 == stages.size() || backward[s + 1].contains(m));
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (; waits[s] < stages[s].size() && can_run(s, stages[s][waits[s]]); ++waits[s]) {
        const Operation& op = stages[s][waits[s]];
        auto& done = op.kind == OperationKind::kForward ? forward[s] : backward[s];
        EXPECT_TRUE(done.insert(op.microbatch).second) << "stage " << s << " does one again";
        moved = true;
      }
    }
  }
  return waits;
}

// The most microbatches of which a stage keeps activations.
int64_t most_in_flight(const std::vector<Operation>& ops) {
  int64_t now = 0, most = 0;
  for (const Operation& op : ops) {
    now += op.kind == OperationKind::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

TEST(Operations, EveryStageComesThrough) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (const int64_t n : {1, 2, 3, 5, 6, 13}) {
      std::vector<std::vector<Operation>> ops;
      for (int s = 0; s < stages; ++s) {
        ops.push_back(list_operations(s, stages, n));
        EXPECT_LE(most_in_flight(ops.back()), std::min<int64_t>(stages - s, n));
      }
      EXPECT_EQ(run_stages(ops),
                std::vector<size_t>(static_cast<size_t>(stages), static_cast<size_t>(2 * n)))
          << stages << " stages, " << n << " microbatches";
    }
  }
}

// A slot is free when the next microbatch gets it.
TEST(Operations, SlotsAreFreedBeforeTheyAreTaken) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      for (const int64_t n : {1, 2, 5, 9}) {
        std::vector<int64_t> taken(count_slots(stage, stages, n), -1);
        for (const Operation& operation : list_operations(stage, stages, n)) {
          ASSERT_LT(operation.slot, taken.size());
          const bool is_forward = operation.kind == OperationKind::kForward;
          EXPECT_EQ(taken[operation.slot], is_forward ? -1 : operation.microbatch);
          taken[operation.slot] = is_forward ? operation.microbatch : -1;
        }
      }
    }
  }
}

// The check of whole pipelines sees a deadlock: stage 0 wants a backward before the forward that
// stage 1 needs first.
TEST(Operations, ADeadlockWouldBeSeen) {
  using enum OperationKind;
  EXPECT_EQ(run_stages({{{kForward, 0}, {kBackward, 0}, {kForward, 1}, {kBackward, 1}},
                        {{kForward, 0}, {kForward, 1}, {kBackward, 0}, {kBackward, 1}}}),
            (std::vector<size_t>{1, 1}));
}

}  // namespace
}  // namespace slimexx::train
