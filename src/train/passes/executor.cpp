#include "train/passes/executor.h"

#include <algorithm>

#include "slimexx/base/activity.h"
#include "slimexx/base/check.h"

namespace slimexx::train {
namespace {

using enum OperationKind;
using tensor::Tensor;

constexpr int64_t kSlotAlignment = 256;  // arenas of devices align to it

int64_t align_slot(int64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

int64_t bytes_beside_slots(const SlotBytes& bytes, const SlotCounts& counts) {
  return align_slot(bytes.scratch) +
         align_slot(bytes.deferred) * static_cast<int64_t>(counts.deferred);
}

bool is_forward_kind(OperationKind kind) {
  return kind == kForward || kind == kSendForward || kind == kReceiveForward;
}

class Executor {
 public:
  Executor(const StepWork& work, std::span<Slot> slots, int64_t num_backwards)
      : work_(work),
        slots_(slots),
        backwards_left_(num_backwards),
        accumulate_(work.chunks.size(), false) {}

  void run(const Operation& operation) {
    SLX_CHECK_LT(operation.slot, slots_.size());
    SLX_CHECK_LT(operation.chunk, work_.chunks.size());
    Slot& slot = slots_[operation.slot];
    if (operation.kind == kWeightGradients) return run_deferred(operation, slot.ctx);
    const StageChunk& chunk = work_.chunks[operation.chunk];
    const Pass pass{chunk.decoder, chunk.weights, work_.head, slot.ctx, work_.measured};
    const bool is_forward = operation.kind == kForward;
    if (operation.kind == kReceiveForward || (is_forward && chunk.decoder.stage().has_embedding))
      start(pass, operation, slot);
    SLX_CHECK(
        slot.in_flight && slot.microbatch == operation.microbatch && slot.chunk == operation.chunk,
        "microbatch {} is not in slot {}", operation.microbatch, operation.slot);
    InFlight& f = *slot.in_flight;
    const PhaseScope phase(is_forward_kind(operation.kind) ? "forward" : "backward");
    if (operation.kind == kReceiveBackward) f.dx = allocate_rows(pass, f);
    switch (operation.kind) {
      case kForward:
        forward(pass, chunk, operation, f);
        break;
      case kBackward:
        backward(pass, chunk, operation, f);
        break;
      case kWeightGradients:
        break;
      case kSendForward:
        send_rows(slot.ctx, f.output, operation.peer);
        break;
      case kSendBackward:
        send_rows(slot.ctx, f.dx, operation.peer);
        break;
      case kReceiveForward:
        receive_rows(slot.ctx, f.input, operation.peer);
        break;
      case kReceiveBackward:
        receive_rows(slot.ctx, f.dx, operation.peer);
        break;
    }
    const bool sends_back = !chunk.decoder.stage().has_embedding;
    if (operation.kind == (sends_back ? kSendBackward : kBackward)) finish(slot);
  }

 private:
  const std::vector<int64_t>& indices_of(const Operation& operation) const {
    return work_.microbatches[static_cast<size_t>(operation.microbatch)];
  }

  void start(const Pass& pass, const Operation& operation, Slot& slot) {
    SLX_CHECK(!slot.in_flight, "slot {} still holds microbatch {}", operation.slot,
              slot.microbatch);
    slot.microbatch = operation.microbatch;
    slot.chunk = operation.chunk;
    InFlight& f = slot.in_flight.emplace();
    f.mark = slot.ctx.arena.mark();
    f.tape.keep = work_.choose_keep(operation.chunk, operation.microbatch);
    start_microbatch(pass, work_.samples, indices_of(operation), f);
  }

  void forward(const Pass& pass, const StageChunk& chunk, const Operation& operation, InFlight& f) {
    const auto& indices = indices_of(operation);
    run_layers(pass, f, true);
    if (!chunk.decoder.stage().has_head) return;
    if (work_.mtp != nullptr)
      run_mtp(pass, chunk.gradients, work_.samples, indices, f.microbatch, f.output, *work_.mtp,
              accumulate_mtp_);
    accumulate_mtp_ = true;
    run_head(pass, f, true);
    run_loss(pass, work_.samples, indices, work_.token_weights, work_.loss, work_.metrics, f);
  }

  void backward(const Pass& pass, const StageChunk& chunk, const Operation& operation,
                InFlight& f) {
    const bool is_last = --backwards_left_ == 0;
    ops::DeferredProducts* deferred = operation.deferred >= 0 ? &deferred_at(operation) : nullptr;
    SLX_CHECK(deferred == nullptr || deferred->empty(),
              "deferred products are pending before microbatch {}", operation.microbatch);
    run_backward(pass, chunk.gradients, f, accumulate_[operation.chunk],
                 is_last && deferred == nullptr ? work_.last_backward : StageHooks{}, work_.routers,
                 deferred);
    accumulate_[operation.chunk] = true;
  }

  ops::DeferredProducts& deferred_at(const Operation& operation) const {
    const auto place = static_cast<size_t>(operation.deferred);
    SLX_CHECK_LT(place, work_.deferred.size());
    return work_.deferred[place];
  }

  void run_deferred(const Operation& operation, const ops::Context& ctx) const {
    const PhaseScope phase("backward");
    deferred_at(operation).run(ctx);
  }

  static void finish(Slot& slot) {
    slot.ctx.arena.release_to(slot.in_flight->mark);
    slot.in_flight.reset();
  }

  const StepWork& work_;
  const std::span<Slot> slots_;
  int64_t backwards_left_;
  std::vector<bool> accumulate_;  // by chunk
  bool accumulate_mtp_ = false;
};

}  // namespace

void SlotBytes::grow_to(const SlotBytes& other) {
  kept = std::max(kept, other.kept);
  scratch = std::max(scratch, other.scratch);
  deferred = std::max(deferred, other.deferred);
}

SlotCounts count_all(std::span<const Operation> operations) {
  return {count_slots(operations), count_deferred(operations)};
}

int64_t bytes_of_slots(const SlotBytes& bytes, const SlotCounts& counts) {
  const int64_t shared = bytes_beside_slots(bytes, counts);
  if (counts.slots == 1) return shared + bytes.kept;
  return shared + align_slot(bytes.kept) * static_cast<int64_t>(counts.slots);
}

int64_t share_of_slots(int64_t capacity, const SlotBytes& bytes, const SlotCounts& counts) {
  const int64_t left = std::max<int64_t>(capacity - bytes_beside_slots(bytes, counts), 0);
  if (counts.slots == 1) return left;
  return left / static_cast<int64_t>(counts.slots) / kSlotAlignment * kSlotAlignment;
}

PlanningSlots::PlanningSlots(const SlotCounts& counts, bool share_scratch, tensor::Device device,
                             const dist::Groups& groups, int64_t most_ep_rows)
    : scratch_(tensor::Arena::for_planning(device, "")) {
  arenas_.reserve(counts.slots);  // slots refer to them
  for (size_t s = 0; s < counts.slots; ++s) {
    arenas_.push_back(tensor::Arena::for_planning(device, ""));
    if (share_scratch) arenas_.back().share_scratch(scratch_);
    slots_.push_back({ops::planning_context(arenas_.back(), groups, most_ep_rows)});
  }
  deferred_arenas_.reserve(counts.deferred);
  for (size_t d = 0; d < counts.deferred; ++d) {
    deferred_arenas_.push_back(tensor::Arena::for_planning(device, ""));
    deferred_.emplace_back(deferred_arenas_.back());
  }
}

SlotBytes PlanningSlots::most_bytes() const {
  SlotBytes most{.scratch = scratch_.high_water_bytes()};
  for (const tensor::Arena& arena : arenas_)
    most.kept = std::max(most.kept, arena.high_water_bytes());
  for (const tensor::Arena& arena : deferred_arenas_)
    most.deferred = std::max(most.deferred, arena.high_water_bytes());
  return most;
}

std::vector<StageChunk> bind_chunks(const StageDecoders& decoders,
                                    const model::ParameterStore& store, bool with_gradients) {
  std::vector<StageChunk> chunks;
  for (const model::Decoder* decoder : decoders.chunks)
    chunks.push_back({*decoder, model::bind_weights(store, decoder->spec(), decoder->stage()),
                      with_gradients
                          ? model::bind_gradients(store, decoder->spec(), decoder->stage())
                          : model::ModelParameters{}});
  return chunks;
}

void send_rows(const ops::Context& ctx, Tensor rows, int peer) {
  if (rows.num_elements() > 0) ctx.groups.pp.send(ctx.stream, rows, peer);
}

void receive_rows(const ops::Context& ctx, Tensor rows, int peer) {
  if (rows.num_elements() > 0) ctx.groups.pp.receive(ctx.stream, rows, peer);
}

void run_operations(std::span<const Operation> operations, const StepWork& work,
                    std::span<Slot> slots) {
  Executor executor(work, slots, std::ranges::count(operations, kBackward, &Operation::kind));
  for (const Operation& operation : operations) executor.run(operation);
}

}  // namespace slimexx::train
