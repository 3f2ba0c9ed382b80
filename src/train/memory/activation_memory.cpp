#include "slimexx/train/activation_memory.h"

#include "train/passes/executor.h"

namespace slimexx::train {

ActivationMemory::ActivationMemory(tensor::Device device, dist::Groups& groups,
                                   const SlotCounts& counts)
    : groups_(groups),
      arena_(device, 0, "activations of microbatches"),
      scratch_arena_(device, 0, arena_.what_for()) {
  for (size_t s = 0; s < counts.slots; ++s)
    slot_arenas_.emplace_back(device, 0, arena_.what_for()).share_scratch(scratch_arena_);
  for (size_t d = 0; d < counts.deferred; ++d)
    deferred_arenas_.emplace_back(device, 0, arena_.what_for());
}

void ActivationMemory::borrow(tensor::Tensor memory) {
  arena_.borrow(memory);
  peer_memories_ = dist::make_peer_memories(groups_, memory);
  is_planned_ = true;
}

void ActivationMemory::leave_ranks() { dist::cancel(peer_memories_); }

int64_t ActivationMemory::used_bytes() const {
  if (slot_arenas_.size() == 1 && deferred_arenas_.empty()) return arena_.high_water_bytes();
  int64_t bytes = scratch_arena_.high_water_bytes();
  for (const auto* arenas : {&slot_arenas_, &deferred_arenas_})
    for (const tensor::Arena& arena : *arenas) bytes += arena.high_water_bytes();
  return bytes;
}

std::vector<Slot> ActivationMemory::share(const SlotPlan& plan, int64_t most_ep_rows) {
  const SlotCounts& counts = plan.counts;
  const SlotBytes& most = plan.most;
  const int64_t slot_bytes = share_of_slots(arena_.capacity_bytes(), most, counts);
  const auto lend = [&](tensor::Arena& borrower, int64_t bytes) {
    borrower.borrow(arena_.allocate(tensor::DType::kU8, {bytes}));
  };
  for (size_t d = 0; d < counts.deferred; ++d) lend(deferred_arenas_[d], most.deferred);
  const auto work_in = [&](tensor::Arena& arena) {
    ops::Context ctx = ops::compute_context(arena, groups_);
    if (groups_.ep_memory != nullptr) ctx.most_ep_rows = most_ep_rows;
    return Slot{ctx};
  };
  std::vector<Slot> slots;
  if (counts.slots == 1) {
    slots.push_back(work_in(arena_));
    return slots;
  }
  lend(scratch_arena_, most.scratch);
  for (size_t s = 0; s < counts.slots; ++s) {
    lend(slot_arenas_[s], slot_bytes);
    slots.push_back(work_in(slot_arenas_[s]));
  }
  return slots;
}

}  // namespace slimexx::train
