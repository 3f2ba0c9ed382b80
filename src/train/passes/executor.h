// Runs the operations of a step over slots. Each microbatch in flight has a slot with its own
// arena, so that the oldest can be freed first. The arena holds tensors that outlive an operation;
// all slots share one scratch arena, because operations run one after another. Deferred products of
// weight gradients have arenas of their own. In planning contexts the same code measures memory.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "slimexx/ops/deferred.h"
#include "train/passes/mtp_pass.h"
#include "train/passes/operations.h"
#include "train/passes/passes.h"

namespace slimexx::train {

struct Slot {
  ops::Context ctx;  // its arena belongs to the slot; several slots share scratch
  int64_t microbatch = -1;
  size_t chunk = 0;
  std::optional<InFlight> in_flight = {};  // from forward to backward
};

struct SlotBytes {
  int64_t kept = 0;      // per slot
  int64_t scratch = 0;   // for all slots; 0 with one slot, whose arena has its scratch too
  int64_t deferred = 0;  // per list of deferred products
  void grow_to(const SlotBytes& other);
};
struct SlotCounts {
  size_t slots = 1, deferred = 0;
};
SlotCounts count_all(std::span<const Operation> operations);
// All slots, scratch and deferred products together, each aligned as device arenas are.
int64_t bytes_of_slots(const SlotBytes& bytes, const SlotCounts& counts);
// Bytes that each slot may keep, if `capacity` also holds scratch and deferred products.
int64_t share_of_slots(int64_t capacity, const SlotBytes& bytes, const SlotCounts& counts);

// The memory of a step or a scoring pass.
struct SlotPlan {
  SlotCounts counts;
  SlotBytes most;                        // over its microbatches
  std::vector<int64_t> least_kept = {};  // least bytes of a slot in a step, by microbatch
  // By microbatch: 0 if it fits, otherwise the bytes of all slots with it. `most` leaves these out.
  std::vector<int64_t> too_large = {};
};

// Slots that measure and hold no memory.
class PlanningSlots {
 public:
  // most_ep_rows as in ops::Context.
  PlanningSlots(const SlotCounts& counts, bool share_scratch, tensor::Device device,
                const dist::Groups& groups, int64_t most_ep_rows = 0);
  PlanningSlots(const PlanningSlots&) = delete;
  PlanningSlots& operator=(const PlanningSlots&) = delete;
  std::span<Slot> slots() { return slots_; }
  std::span<ops::DeferredProducts> deferred() { return deferred_; }
  SlotBytes most_bytes() const;  // maximum over slots, and over lists

 private:
  tensor::Arena scratch_;
  std::vector<tensor::Arena> arenas_, deferred_arenas_;
  std::vector<Slot> slots_;
  std::vector<ops::DeferredProducts> deferred_;
};

// For a model without experts.
inline const model::RouterBalances& no_routers() {
  static const model::RouterBalances none;
  return none;
}

// A stage of the model on this rank.
struct StageChunk {
  const model::Decoder& decoder;
  model::ModelParameters weights;
  model::ModelParameters gradients = {};  // only if it trains
};

// Views of a store that holds the stages of `decoders`.
std::vector<StageChunk> bind_chunks(const StageDecoders& decoders,
                                    const model::ParameterStore& store, bool with_gradients);

// Inputs that all operations of a step share.
struct StepWork {
  std::span<const StageChunk> chunks;
  const model::HeadOptions& head;
  std::span<const Sample> samples;
  std::span<const std::vector<int64_t>> microbatches;  // of this rank: indices of samples
  std::span<const std::vector<float>> token_weights;   // as token_weights gives them
  const ops::PolicyLossOptions& loss;
  tensor::Tensor metrics;  // [kNumLossMetrics] F64, added to
  // Which activations the layers of a chunk keep for backward; called before the forward.
  std::function<model::KeepPlan(size_t chunk, int64_t microbatch)> choose_keep;
  const MtpWork* mtp = nullptr;  // on the stage with the head; null: no MTP layer is trained
  const model::RouterBalances& routers = no_routers();
  // Called during the last backward only: gradients are final after it, except deferred ones.
  StageHooks last_backward = {};
  std::span<ops::DeferredProducts> deferred = {};  // count_deferred(operations) lists
  MeasuredRank measured = MeasuredRank::kLargest;  // in planning contexts
};

// Transfers between stages, on the stream. Empty tensors are not sent; all ranks of a pipeline
// agree which are empty.
void send_rows(const ops::Context& ctx, tensor::Tensor rows, int peer);
void receive_rows(const ops::Context& ctx, tensor::Tensor rows, int peer);

// The first backward of a chunk writes its gradients; later backwards add to them, in the order of
// the list. Gradients of MTP layers are computed with the forwards, so that they are final before
// the last backward begins. Stages exchange rows through the pp group of the slots' contexts.
void run_operations(std::span<const Operation> operations, const StepWork& work,
                    std::span<Slot> slots);

}  // namespace slimexx::train
