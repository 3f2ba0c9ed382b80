// The memory of a trainer's activations: one arena, from which slots, their scratch and deferred
// products borrow during a step or a scoring pass.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/ops/context.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::train {

struct Slot;  // src/train/passes/executor.h
struct SlotCounts;
struct SlotPlan;

class ActivationMemory {
 public:
  // `counts`: the most slots and deferred products of a step. `groups` are those of the trainer's
  // contexts; borrow() sets their peer memory.
  ActivationMemory(tensor::Device device, dist::Groups& groups, const SlotCounts& counts);

  // From now on activations live in `memory` [bytes] U8 and never grow: each microbatch keeps what
  // fits (recompute_granularity auto). A microbatch that needs more is split by samples, which
  // changes only the order of sums; a single sample that needs more throws Error(kEnvironment) on
  // all ranks. The owner must not use the memory during a call of the trainer; its content is
  // undefined afterwards. Without this call the arena grows with the microbatches, and auto keeps
  // everything. Ranks that compute a microbatch together keep the same activations: what fits on
  // all of them. `memory` must begin a Buffer: ranks that can reach each other's memory then
  // exchange rows by kernels. Collective over the groups of a model replica.
  void borrow(tensor::Tensor memory);
  bool is_planned() const { return is_planned_; }  // the arena's size is final
  // Call after a failure, before anything waits for the device: ends kernels that wait for ranks
  // that are gone. No step may follow.
  void leave_ranks();
  int64_t capacity_bytes() const { return arena_.capacity_bytes(); }
  // High-water mark of steps and scoring so far.
  int64_t used_bytes() const;

  void reserve(int64_t bytes) { arena_.reserve(bytes); }
  ops::Context context() { return ops::compute_context(arena_, groups_); }
  // Divides the arena into slots for a step or a scoring pass, until the caller releases the arena:
  // equal shares of the space after scratch and deferred products. A single slot is the whole rest,
  // with scratch after its kept tensors. most_ep_rows as in ops::Context.
  std::vector<Slot> share(const SlotPlan& plan, int64_t most_ep_rows);
  std::span<tensor::Arena> deferred() { return deferred_arenas_; }

 private:
  dist::Groups& groups_;
  dist::PeerMemories peer_memories_;  // on arena_
  tensor::Arena arena_;
  // Borrow from arena_; a single slot uses arena_ itself.
  tensor::Arena scratch_arena_;
  std::vector<tensor::Arena> slot_arenas_, deferred_arenas_;
  bool is_planned_ = false;
};

}  // namespace slimexx::train
