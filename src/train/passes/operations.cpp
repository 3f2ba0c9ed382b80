#include "train/passes/operations.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "slimexx/base/check.h"

namespace slimexx::train {
namespace {

using enum OperationKind;

// A forward or backward of one stage.
struct Compute {
  OperationKind kind;
  int64_t microbatch;
  size_t chunk;
  bool operator==(const Compute&) const = default;
};

// Microbatches per group: a group passes through one chunk of a rank before the next chunk.
int64_t group_size(const PipelineShape& shape) {
  return shape.num_chunks > 1 ? shape.num_ranks : 1;
}

// The forwards of a rank, group by group.
std::vector<Compute> list_forwards(const PipelineShape& shape, int64_t num_microbatches) {
  const int64_t group = group_size(shape);
  std::vector<Compute> forwards;
  for (int64_t begin = 0; begin < num_microbatches; begin += group) {
    const int64_t end = std::min(num_microbatches, begin + group);
    for (size_t chunk = 0; chunk < shape.num_chunks; ++chunk)
      for (int64_t m = begin; m < end; ++m) forwards.push_back({kForward, m, chunk});
  }
  return forwards;
}

// 1F1B after a warm-up of forwards that lasts until the first backward can arrive. Backwards go
// through the chunks from the last to the first. If they defer weight gradients, each backward is
// followed by the weight gradients of the microbatch that is `rank` microbatches earlier.
std::vector<Compute> list_forwards_and_backwards(int rank, const PipelineShape& shape,
                                                 int64_t num_microbatches) {
  const std::vector<Compute> forwards = list_forwards(shape, num_microbatches);
  const auto chunks = static_cast<int>(shape.num_chunks);
  const int behind = shape.num_ranks - rank - 1;
  const auto warm_up = std::min(
      forwards.size(),
      static_cast<size_t>(chunks == 1 ? behind : 2 * behind + (chunks - 1) * shape.num_ranks));
  std::vector<Compute> computes;
  for (size_t i = 0; i < forwards.size() + warm_up; ++i) {
    if (i < forwards.size()) computes.push_back(forwards[i]);
    if (i < warm_up) continue;
    const Compute& f = forwards[i - warm_up];
    computes.push_back({kBackward, f.microbatch, shape.num_chunks - 1 - f.chunk});
    if (shape.zero_bubble && f.microbatch >= rank)
      computes.push_back({kWeightGradients, f.microbatch - rank, 0});
  }
  if (shape.zero_bubble)
    for (int64_t m = std::max<int64_t>(num_microbatches - rank, 0); m < num_microbatches; ++m)
      computes.push_back({kWeightGradients, m, 0});
  return computes;
}

// A tensor that one stage computes for another.
struct Transfer {
  int from = 0, to = 0;
  Compute maker, user;
};

// Orders the operations of all ranks as they would run, if gradients of inputs and of weights each
// take as long as a forward. A transfer is placed as soon as both ranks have finished their current
// operation, possibly long before the receiver needs it, so that the sender does not wait. A
// forward (or the receive before it) takes a slot only if one is free, and forwards take slots in
// order: otherwise a later one could leave none for the next.
class PipelineOrder {
 public:
  PipelineOrder(const PipelineShape& shape, std::vector<std::vector<Compute>> computes,
                const std::vector<size_t>& num_slots, bool has_backwards)
      : shape_(shape), has_backwards_(has_backwards) {
    for (size_t r = 0; r < computes.size(); ++r)
      ranks_.push_back({.computes = std::move(computes[r]),
                        .slots = std::vector<std::optional<Compute>>(num_slots[r])});
  }

  std::vector<Operation> operations_of(int rank) {
    run();
    return of(rank).operations;
  }

  // Time until the last rank is done; a forward takes 1.
  int64_t count_time() {
    run();
    return std::ranges::max_element(ranks_, {}, &Rank::idle_at)->idle_at;
  }

 private:
  struct Rank {
    std::vector<Compute> computes;
    std::vector<std::optional<Compute>> slots;  // the forward whose activations a slot keeps
    size_t next = 0;                            // index into computes
    int64_t idle_at = 0;
    std::vector<Compute> inputs = {};  // received for later computes
    std::vector<Operation> operations = {};
  };

  void run() {
    while (take_next()) {
    }
    for (const Rank& r : ranks_)
      SLX_CHECK(r.next == r.computes.size(), "a pipeline of {} ranks and {} chunks deadlocks",
                shape_.num_ranks, shape_.num_chunks);
  }

  Rank& of(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  bool is_first(int rank, size_t chunk) const { return rank == 0 && chunk == 0; }
  bool is_last(int rank, size_t chunk) const {
    return rank == shape_.num_ranks - 1 && chunk == shape_.num_chunks - 1;
  }
  static bool has_free_slot(const Rank& r) {
    return std::ranges::find(r.slots, std::optional<Compute>()) != r.slots.end();
  }

  static bool has_input(const Rank& r, const Compute& c) {
    return std::ranges::find(r.inputs, c) != r.inputs.end();
  }
  // The first forward that has no slot yet.
  static std::optional<Compute> next_to_start(const Rank& r) {
    for (size_t i = r.next; i < r.computes.size(); ++i)
      if (r.computes[i].kind == kForward && !has_input(r, r.computes[i])) return r.computes[i];
    return {};
  }

  bool can_take(const Transfer& t) const {
    const Rank& to = of(t.to);
    return t.user.kind == kBackward || (has_free_slot(to) && next_to_start(to) == t.user);
  }

  bool can_compute(int rank) const {
    const Rank& r = of(rank);
    if (r.next == r.computes.size()) return false;
    const Compute& c = r.computes[r.next];
    if (c.kind == kWeightGradients) return true;
    if (c.kind == kForward && is_first(rank, c.chunk)) return has_free_slot(r);
    if (c.kind == kBackward && is_last(rank, c.chunk)) return true;
    return has_input(r, c);
  }

  // Runs the earliest operation that can run; ties: transfers first, and among them those of a
  // backward, which frees a slot. Returns false if there is none.
  bool take_next() {
    auto best_transfer = pending_.end();
    int64_t best = -1;
    for (auto t = pending_.begin(); t != pending_.end(); ++t) {
      if (!can_take(*t)) continue;
      const int64_t start = std::max(of(t->from).idle_at, of(t->to).idle_at);
      const bool is_earlier = best < 0 || start < best;
      const bool frees =
          start == best && best_transfer->user.kind == kForward && t->user.kind == kBackward;
      if (!is_earlier && !frees) continue;
      best = start;
      best_transfer = t;
    }
    int best_rank = -1;
    for (int rank = 0; rank < shape_.num_ranks; ++rank) {
      if (!can_compute(rank) || (best >= 0 && of(rank).idle_at >= best)) continue;
      best = of(rank).idle_at;
      best_rank = rank;
    }
    if (best < 0) return false;
    if (best_rank >= 0) {
      compute(best_rank);
    } else {
      take(*best_transfer, best);
      pending_.erase(best_transfer);
    }
    return true;
  }

  static size_t take_slot(Rank& r, const Compute& c) {
    const auto slot = std::ranges::find(r.slots, std::optional<Compute>());
    SLX_CHECK(slot != r.slots.end(), "microbatch {} has no slot", c.microbatch);
    *slot = Compute{kForward, c.microbatch, c.chunk};
    return static_cast<size_t>(slot - r.slots.begin());
  }
  static size_t slot_of(const Rank& r, const Compute& c) {
    const auto slot =
        std::ranges::find(r.slots, std::optional(Compute{kForward, c.microbatch, c.chunk}));
    SLX_CHECK(slot != r.slots.end(), "microbatch {} has no slot", c.microbatch);
    return static_cast<size_t>(slot - r.slots.begin());
  }

  void compute(int rank) {
    Rank& r = of(rank);
    const Compute c = r.computes[r.next++];
    const int deferred =
        shape_.zero_bubble ? static_cast<int>(c.microbatch % (int64_t{rank} + 1)) : -1;
    if (c.kind == kWeightGradients) {
      r.operations.push_back({c.kind, c.microbatch, 0, c.chunk, -1, deferred});
      r.idle_at += 1;
      return;
    }
    const bool is_forward = c.kind == kForward;
    const size_t slot = is_forward && is_first(rank, c.chunk) ? take_slot(r, c) : slot_of(r, c);
    r.operations.push_back({c.kind, c.microbatch, slot, c.chunk, -1, is_forward ? -1 : deferred});
    r.idle_at += is_forward || shape_.zero_bubble ? 1 : 2;
    std::erase(r.inputs, c);
    if (is_forward ? is_last(rank, c.chunk) : is_first(rank, c.chunk)) {
      if (!is_forward || !has_backwards_) r.slots[slot].reset();
      return;
    }
    const int n = shape_.num_ranks;
    const int peer = (rank + (is_forward ? 1 : n - 1)) % n;
    size_t chunk = c.chunk;
    if (is_forward && rank == n - 1) ++chunk;
    if (!is_forward && rank == 0) --chunk;
    pending_.push_back({rank, peer, c, {c.kind, c.microbatch, chunk}});
  }

  void take(const Transfer& t, int64_t at) {
    Rank &from = of(t.from), &to = of(t.to);
    const bool is_forward = t.maker.kind == kForward;
    const size_t sent = slot_of(from, t.maker);
    from.operations.push_back(
        {is_forward ? kSendForward : kSendBackward, t.maker.microbatch, sent, t.maker.chunk, t.to});
    if (!is_forward || !has_backwards_) from.slots[sent].reset();
    const size_t received = is_forward ? take_slot(to, t.user) : slot_of(to, t.user);
    to.operations.push_back({is_forward ? kReceiveForward : kReceiveBackward, t.user.microbatch,
                             received, t.user.chunk, t.from});
    to.inputs.push_back(t.user);
    from.idle_at = to.idle_at = at;
  }

  const PipelineShape shape_;
  const bool has_backwards_;
  std::vector<Rank> ranks_;
  std::vector<Transfer> pending_;
};

// Maximum number of forwards without their backward.
size_t most_in_flight(const std::vector<Compute>& computes) {
  size_t now = 0, most = 0;
  for (const Compute& c : computes) {
    now += c.kind == kForward ? 1 : 0;
    most = std::max(most, now);
    now -= c.kind == kBackward ? 1 : 0;
  }
  return most;
}

template <class List>
std::vector<std::vector<Compute>> list_of_all_ranks(const PipelineShape& shape, const List& list) {
  std::vector<std::vector<Compute>> computes;
  for (int rank = 0; rank < shape.num_ranks; ++rank) computes.push_back(list(rank));
  return computes;
}

PipelineOrder order_step(const PipelineShape& shape, int64_t num_microbatches) {
  SLX_CHECK_EQ(num_microbatches, round_up_microbatches(shape, num_microbatches));
  SLX_CHECK(!shape.zero_bubble || shape.num_chunks == 1,
            "zero_bubble needs one chunk per rank, not {}", shape.num_chunks);
  auto computes = list_of_all_ranks(
      shape, [&](int r) { return list_forwards_and_backwards(r, shape, num_microbatches); });
  std::vector<size_t> num_slots;
  for (const auto& own : computes) num_slots.push_back(most_in_flight(own));
  return {shape, std::move(computes), num_slots, true};
}

PipelineOrder order_scoring(const PipelineShape& shape, int64_t num_microbatches) {
  auto computes =
      list_of_all_ranks(shape, [&](int) { return list_forwards(shape, num_microbatches); });
  // Interleaved stages form a ring: with one slot per rank, a cycle of sends could deadlock, so
  // each rank has two.
  const std::vector<size_t> num_slots(computes.size(), shape.num_chunks > 1 ? 2 : 1);
  return {shape, std::move(computes), num_slots, false};
}

}  // namespace

PipelineShape make_pipeline_shape(const TrainOptions& options, int num_ranks, size_t num_chunks) {
  return {.num_ranks = num_ranks,
          .num_chunks = num_chunks,
          .zero_bubble = options.pipeline_schedule == "zb_h1" && num_ranks > 1};
}

int64_t round_up_microbatches(const PipelineShape& shape, int64_t num_microbatches) {
  const int64_t group = group_size(shape);
  return (num_microbatches + group - 1) / group * group;
}

double count_step_slots(const PipelineShape& shape, int64_t num_microbatches) {
  return static_cast<double>(order_step(shape, num_microbatches).count_time()) /
         (3 * static_cast<double>(shape.num_chunks));
}

double count_scoring_slots(const PipelineShape& shape, int64_t num_microbatches) {
  return static_cast<double>(order_scoring(shape, num_microbatches).count_time()) /
         static_cast<double>(shape.num_chunks);
}

std::vector<Operation> list_operations(int rank, const PipelineShape& shape,
                                       int64_t num_microbatches) {
  return order_step(shape, num_microbatches).operations_of(rank);
}

std::vector<Operation> list_forward_operations(int rank, const PipelineShape& shape,
                                               int64_t num_microbatches) {
  return order_scoring(shape, num_microbatches).operations_of(rank);
}

size_t count_slots(std::span<const Operation> operations) {
  size_t count = 0;
  for (const Operation& operation : operations) count = std::max(count, operation.slot + 1);
  return count;
}

size_t count_deferred(std::span<const Operation> operations) {
  int count = 0;
  for (const Operation& operation : operations) count = std::max(count, operation.deferred + 1);
  return static_cast<size_t>(count);
}

std::vector<Operation> list_most_operations(int rank, const PipelineShape& shape) {
  // Enough to finish all warm-ups.
  return list_operations(rank, shape, 4 * shape.num_ranks);
}

}  // namespace slimexx::train
