#include "executor.h"

#include "slimexx/base/check.h"

namespace slimexx::train {
namespace {

void start(const StepWork& work, const Operation& operation, Slot& slot, bool accumulate_mtp) {
  SLX_CHECK(!slot.in_flight, "slot {} is taken by microbatch {}", operation.slot, slot.microbatch);
  const auto& indices = work.microbatches[static_cast<size_t>(operation.microbatch)];
  const Pass pass{work.decoder, work.weights, work.head, slot.ctx};
  slot.microbatch = operation.microbatch;
  InFlight& f = slot.in_flight.emplace();
  f.mark = slot.ctx.arena.mark();
  f.tape.keep = work.choose_keep(indices);
  const tensor::Tensor x = run_layers(pass, work.samples, indices, f, true);
  if (work.mtp != nullptr)
    run_mtp(pass, work.gradients, work.samples, indices, f.microbatch, x, *work.mtp,
            accumulate_mtp);
  run_head(pass, x, f, true);
  run_loss(pass, work.samples, indices, work.token_weights, work.loss, work.metrics, f);
}

void finish(const StepWork& work, const Operation& operation, Slot& slot, bool accumulate,
            const StageHooks& hooks) {
  SLX_CHECK(slot.in_flight && slot.microbatch == operation.microbatch,
            "microbatch {} is not in slot {}", operation.microbatch, operation.slot);
  const Pass pass{work.decoder, work.weights, work.head, slot.ctx};
  run_backward(pass, work.gradients, *slot.in_flight, accumulate, hooks, work.routers);
  slot.ctx.arena.release_to(slot.in_flight->mark);
  slot.in_flight.reset();
}

}  // namespace

void run_operations(std::span<const Operation> operations, const StepWork& work,
                    std::span<Slot> slots) {
  size_t backwards_left = 0;
  for (const Operation& operation : operations)
    backwards_left += operation.kind == OperationKind::kBackward ? 1 : 0;
  bool accumulate = false, accumulate_mtp = false;
  for (const Operation& operation : operations) {
    SLX_CHECK_LT(operation.slot, slots.size());
    Slot& slot = slots[operation.slot];
    if (operation.kind == OperationKind::kForward) {
      start(work, operation, slot, accumulate_mtp);
      accumulate_mtp = true;
      continue;
    }
    const bool is_last = --backwards_left == 0;
    finish(work, operation, slot, accumulate, is_last ? work.last_backward : StageHooks{});
    accumulate = true;
  }
}

}  // namespace slimexx::train
