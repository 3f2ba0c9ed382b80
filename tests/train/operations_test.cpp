#include "train/passes/operations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace slimexx::train {
namespace {

using enum OperationKind;

std::vector<std::vector<Operation>> list_all(const PipelineShape& shape, int64_t num_microbatches,
                                             bool forwards_alone = false) {
  std::vector<std::vector<Operation>> lists;
  for (int rank = 0; rank < shape.num_ranks; ++rank)
    lists.push_back(forwards_alone ? list_forward_operations(rank, shape, num_microbatches)
                                   : list_operations(rank, shape, num_microbatches));
  return lists;
}

TEST(Operations, OneStageAlternates) {
  EXPECT_EQ(list_operations(0, {}, 2),
            (std::vector<Operation>{{kForward, 0}, {kBackward, 0}, {kForward, 1}, {kBackward, 1}}));
}

// 1F1B after the warm-up. A transfer is placed where both ranks are free for it.
TEST(Operations, TwoStagesTakeTurns) {
  const PipelineShape shape{.num_ranks = 2};
  EXPECT_EQ(list_operations(0, shape, 3), (std::vector<Operation>{{kForward, 0, 0},
                                                                  {kSendForward, 0, 0, 0, 1},
                                                                  {kForward, 1, 1},
                                                                  {kReceiveBackward, 0, 0, 0, 1},
                                                                  {kSendForward, 1, 1, 0, 1},
                                                                  {kBackward, 0, 0},
                                                                  {kForward, 2, 0},
                                                                  {kReceiveBackward, 1, 1, 0, 1},
                                                                  {kSendForward, 2, 0, 0, 1},
                                                                  {kBackward, 1, 1},
                                                                  {kReceiveBackward, 2, 0, 0, 1},
                                                                  {kBackward, 2, 0}}));
  std::vector<Operation> last;
  for (int64_t m = 0; m < 3; ++m)
    for (const Operation& operation :
         {Operation{kReceiveForward, m, 0, 0, 0}, Operation{kForward, m}, Operation{kBackward, m},
          Operation{kSendBackward, m, 0, 0, 0}})
      last.push_back(operation);
  EXPECT_EQ(list_operations(1, shape, 3), last);
}

// Simulates all ranks, each in its own order, until none can proceed. A send and its receive block
// each other; other operations need only their input. Returns each rank's position: the list's end
// unless there is a deadlock.
class Rendezvous {
 public:
  Rendezvous(const PipelineShape& shape, std::vector<std::vector<Operation>> lists)
      : shape_(shape), lists_(std::move(lists)), at_(lists_.size(), 0) {}

  std::vector<size_t> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < lists_.size(); ++r) moved = step(r) || moved;
    }
    return at_;
  }

 private:
  static bool is_send(const Operation& op) {
    return op.kind == kSendForward || op.kind == kSendBackward;
  }
  static bool is_receive(const Operation& op) {
    return op.kind == kReceiveForward || op.kind == kReceiveBackward;
  }
  int stage_of(size_t rank, const Operation& op) const {
    return static_cast<int>(op.chunk) * shape_.num_ranks + static_cast<int>(rank);
  }

  bool step(size_t r) {
    if (at_[r] == lists_[r].size()) return false;
    const Operation& op = lists_[r][at_[r]];
    if (is_receive(op)) return false;  // handled with the sender
    const int stage = stage_of(r, op);
    if (!is_send(op)) {
      check_input(op, stage);
      EXPECT_TRUE(done_.insert({op.kind, stage, op.microbatch}).second) << "done again";
      ++at_[r];
      return true;
    }
    const auto peer = static_cast<size_t>(op.peer);
    if (at_[peer] == lists_[peer].size()) return false;
    const Operation& other = lists_[peer][at_[peer]];
    if (!is_receive(other) || static_cast<size_t>(other.peer) != r) return false;
    // Send and receive must name the same rows, and the sender must have computed them.
    const bool is_forward = op.kind == kSendForward;
    EXPECT_EQ(other.kind, is_forward ? kReceiveForward : kReceiveBackward);
    EXPECT_EQ(other.microbatch, op.microbatch);
    EXPECT_EQ(stage_of(peer, other), stage + (is_forward ? 1 : -1));
    const auto made = is_forward ? kForward : kBackward;
    EXPECT_TRUE(done_.contains({made, stage, op.microbatch}));
    EXPECT_TRUE(done_.insert({other.kind, stage_of(peer, other), op.microbatch}).second);
    ++at_[r];
    ++at_[peer];
    return true;
  }

  void check_input(const Operation& op, int stage) const {
    const int last = shape_.num_ranks * static_cast<int>(shape_.num_chunks) - 1;
    const int64_t m = op.microbatch;
    if (op.kind == kForward && stage > 0) {
      EXPECT_TRUE(done_.contains({kReceiveForward, stage, m}));
    }
    if (op.kind == kForward) return;
    EXPECT_TRUE(done_.contains({kForward, stage, m}));
    if (op.kind == kWeightGradients) {
      EXPECT_TRUE(done_.contains({kBackward, stage, m}));
    }
    if (stage < last) {
      EXPECT_TRUE(done_.contains({kReceiveBackward, stage, m}));
    }
  }

  const PipelineShape shape_;
  const std::vector<std::vector<Operation>> lists_;
  std::vector<size_t> at_;
  std::set<std::tuple<OperationKind, int, int64_t>> done_;
};

std::vector<size_t> sizes_of(const std::vector<std::vector<Operation>>& lists) {
  std::vector<size_t> sizes;
  for (const auto& list : lists) sizes.push_back(list.size());
  return sizes;
}

// A slot keeps one microbatch of one chunk from its first operation to its last.
void expect_slots(const std::vector<Operation>& operations, bool forwards_alone) {
  std::map<size_t, std::pair<int64_t, size_t>> taken;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& op = operations[i];
    if (op.kind == kWeightGradients) continue;
    const std::pair<int64_t, size_t> own{op.microbatch, op.chunk};
    EXPECT_EQ(taken.emplace(op.slot, own).first->second, own) << "operation " << i;
    const bool has_later = std::any_of(operations.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                       operations.end(), [&](const Operation& later) {
                                         return later.kind != kWeightGradients &&
                                                later.microbatch == op.microbatch &&
                                                later.chunk == op.chunk;
                                       });
    if (!has_later) taken.erase(op.slot);
  }
  EXPECT_TRUE(taken.empty()) << forwards_alone;
}

void expect_through(const PipelineShape& shape, int64_t n, bool forwards_alone) {
  SCOPED_TRACE(fmt::format("{} ranks, {} chunks, {} microbatches, forwards alone: {}",
                           shape.num_ranks, shape.num_chunks, n, forwards_alone));
  const auto lists = list_all(shape, n, forwards_alone);
  EXPECT_EQ(Rendezvous(shape, lists).run(), sizes_of(lists));
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    const auto computes = std::ranges::count_if(lists[rank], [](const Operation& op) {
      return op.kind == kForward || op.kind == kBackward;
    });
    EXPECT_EQ(computes, (forwards_alone ? 1 : 2) * n * static_cast<int64_t>(shape.num_chunks));
    expect_slots(lists[rank], forwards_alone);
  }
}

TEST(Operations, NoOrderWaitsForEver) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const int64_t n : {0, 1, 2, 3, 5, 6, 7, 8, 13, 21})
      for (const bool forwards_alone : {false, true})
        expect_through({.num_ranks = ranks}, n, forwards_alone);
}

TEST(Operations, NoInterleavedOrderWaitsForEver) {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (const size_t chunks : {2, 3, 4}) {
      const PipelineShape shape{ranks, chunks};
      for (const int64_t n : {0, 1, 2, 5, 7, 13})
        expect_through(shape, round_up_microbatches(shape, n), false);
      for (const int64_t n : {0, 1, 2, 5, 7, 13}) expect_through(shape, n, true);
    }
  }
}

// Rank r of n keeps at most n - r microbatches, for any number of microbatches. With interleaving
// it keeps the warm-up chunks plus one.
TEST(Operations, SlotsAreBounded) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int64_t n : {1, 2, 5, 9, 40})
        EXPECT_EQ(count_slots(list_operations(rank, {ranks}, n)),
                  static_cast<size_t>(std::min<int64_t>(ranks - rank, n)));
      EXPECT_EQ(count_slots(list_most_operations(rank, {ranks})),
                static_cast<size_t>(ranks - rank));
      if (ranks == 1) continue;
      for (const int chunks : {2, 3}) {
        const PipelineShape shape{ranks, static_cast<size_t>(chunks)};
        const size_t most = count_slots(list_most_operations(rank, shape));
        EXPECT_LE(most, static_cast<size_t>(2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1));
        for (const int groups : {1, 2, 3, 9})
          EXPECT_LE(count_slots(list_operations(rank, shape, groups * ranks)), most);
      }
    }
  }
}

// Weight gradients come after their backwards in microbatch order, so that sums equal those of
// 1F1B; at most as many microbatches are in flight as on the first stage of 1F1B.
TEST(Operations, WeightGradientsFollowInOrder) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const PipelineShape shape{.num_ranks = ranks, .zero_bubble = true};
    for (const int64_t n : {0, 1, 2, 3, 5, 8, 13, 21}) {
      expect_through(shape, n, false);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<Operation> operations = list_operations(rank, shape, n);
        int64_t forwards = 0, weights = 0;
        std::map<int, int64_t> left;  // by slot: the microbatch
        for (const Operation& op : operations) {
          forwards += op.kind == kForward ? 1 : 0;
          EXPECT_LE(forwards - weights, ranks);
          if (op.kind == kBackward) {
            EXPECT_TRUE(left.emplace(op.deferred, op.microbatch).second);
          } else if (op.kind == kWeightGradients) {
            EXPECT_EQ(op.microbatch, weights++);
            EXPECT_EQ(left[op.deferred], op.microbatch);
            left.erase(op.deferred);
          } else {
            EXPECT_EQ(op.deferred, -1);
          }
        }
        EXPECT_EQ(weights, n);
        EXPECT_EQ(count_slots(operations), count_slots(list_operations(rank, {ranks}, n)));
        EXPECT_EQ(count_deferred(operations), static_cast<size_t>(std::min<int64_t>(rank + 1, n)));
      }
    }
  }
}

// The time until the last rank finishes, if a forward, an input gradient and a weight gradient take
// 1 each.
int64_t count_time(const std::vector<std::vector<Operation>>& lists) {
  std::vector<size_t> at(lists.size());
  std::vector<int64_t> now(lists.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < lists.size(); ++r) {
      if (at[r] == lists[r].size()) continue;
      const Operation& op = lists[r][at[r]];
      if (op.kind == kReceiveForward || op.kind == kReceiveBackward) continue;
      if (op.kind == kSendForward || op.kind == kSendBackward) {
        const auto peer = static_cast<size_t>(op.peer);
        if (at[peer] == lists[peer].size()) continue;
        const Operation& other = lists[peer][at[peer]];
        if (other.microbatch != op.microbatch || other.peer != static_cast<int>(r)) continue;
        now[r] = now[peer] = std::max(now[r], now[peer]);
        ++at[peer];
      } else {
        now[r] += op.kind == kBackward && op.deferred < 0 ? 2 : 1;
      }
      ++at[r];
      moved = true;
    }
  }
  return *std::max_element(now.begin(), now.end());
}

// Deferring weight gradients shortens the bubble of 3 (stages - 1) to a third.
TEST(Operations, ApartWeightGradientsShortenTheWait) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const int64_t n : {int64_t{ranks}, int64_t{2 * ranks}, int64_t{64}}) {
      EXPECT_EQ(count_time(list_all({.num_ranks = ranks}, n)), 3 * (n + ranks - 1));
      EXPECT_LE(count_time(list_all({.num_ranks = ranks, .zero_bubble = true}, n)),
                3 * n + ranks - 1)
          << ranks << " ranks, " << n << " microbatches";
    }
  }
}

// The planned time equals that of the lists, in microbatches of forward plus both gradients.
// Interleaving divides the bubble by the number of chunks, for any number of microbatches.
TEST(Operations, SlotsAreTheTimeOfTheLists) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const int64_t n = 4 * ranks;
    const auto whole = static_cast<double>(n), wait = static_cast<double>(ranks - 1);
    EXPECT_DOUBLE_EQ(count_step_slots({.num_ranks = ranks}, n), whole + wait);
    EXPECT_NEAR(count_step_slots({.num_ranks = ranks, .zero_bubble = true}, n), whole + wait / 3,
                1e-9);
    EXPECT_EQ(count_scoring_slots({.num_ranks = ranks}, n), whole + wait);
    for (const size_t chunks : {2, 3}) {
      const PipelineShape shape{ranks, chunks};
      const auto parts = static_cast<double>(chunks);
      const double slots = count_step_slots(shape, n);
      EXPECT_NEAR(3 * parts * slots, static_cast<double>(count_time(list_all(shape, n))), 1e-9)
          << ranks << " ranks, " << chunks << " chunks";
      for (const int64_t many : {n, 32 * int64_t{ranks}})
        EXPECT_NEAR(count_step_slots(shape, many), static_cast<double>(many) + wait / parts, 1e-9)
            << ranks << " ranks, " << chunks << " chunks, " << many;
    }
  }
}

// The simulation detects a deadlock: here both ranks send first.
TEST(Operations, ADeadlockWouldBeSeen) {
  const PipelineShape shape{.num_ranks = 2};
  auto lists = list_all(shape, 2);
  std::swap(lists[0][3], lists[0][4]);  // sends before it receives
  EXPECT_NE(Rendezvous(shape, lists).run(), sizes_of(lists));
}

}  // namespace
}  // namespace slimexx::train
