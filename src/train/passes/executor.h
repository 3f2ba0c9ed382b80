// Runs the operations of a step over slots: each microbatch in flight has one, with an arena of its
// own, so that the oldest can be freed first. It keeps what outlives an operation; what does not is
// scratch, which all slots share, for operations run one after another. Products of weights'
// gradients that backwards leave for later have places of their own. The same code measures, in
// planning contexts.
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
  ops::Context ctx;  // its arena is the slot's, and shares its scratch where there are several
  int64_t microbatch = -1;
  size_t chunk = 0;
  std::optional<InFlight> in_flight = {};  // from forward to backward
};

struct SlotBytes {
  int64_t kept = 0;      // of each slot
  int64_t scratch = 0;   // of all together; 0 where the only slot's arena has its scratch too
  int64_t deferred = 0;  // of each place of deferred products
  void grow_to(const SlotBytes& other);
};
struct SlotCounts {
  size_t slots = 1, deferred = 0;
};
SlotCounts count_all(std::span<const Operation> operations);
// Of all, each as aligned as arenas of devices are.
int64_t bytes_of_slots(const SlotBytes& bytes, const SlotCounts& counts);
// What each slot may keep in `capacity` bytes beside scratch and deferred products.
int64_t share_of_slots(int64_t capacity, const SlotBytes& bytes, const SlotCounts& counts);

// Of a step or a scoring pass.
struct SlotPlan {
  SlotCounts counts;
  SlotBytes most;                        // of its microbatches
  std::vector<int64_t> least_kept = {};  // of a step: bytes of a slot, by microbatch
  // By microbatch: 0 where it fits, else what all slots would take with it. `most` is without
  // these.
  std::vector<int64_t> too_large = {};
};

// Slots that only measure.
class PlanningSlots {
 public:
  // most_ep_rows as in ops::Context.
  PlanningSlots(const SlotCounts& counts, bool share_scratch, tensor::Device device,
                const dist::Groups& groups, int64_t most_ep_rows = 0);
  PlanningSlots(const PlanningSlots&) = delete;
  PlanningSlots& operator=(const PlanningSlots&) = delete;
  std::span<Slot> slots() { return slots_; }
  std::span<ops::DeferredProducts> deferred() { return deferred_; }
  SlotBytes most_bytes() const;  // of the slot, and of the place, that took most

 private:
  tensor::Arena scratch_;
  std::vector<tensor::Arena> arenas_, deferred_arenas_;
  std::vector<Slot> slots_;
  std::vector<ops::DeferredProducts> deferred_;
};

// Of a model without experts.
inline const model::RouterBalances& no_routers() {
  static const model::RouterBalances none;
  return none;
}

// A stage of the model on this rank.
struct StageChunk {
  const model::Decoder& decoder;
  model::ModelParameters weights;
  model::ModelParameters gradients = {};  // of a policy
};

// Views of a store that holds the stages of `decoders`.
std::vector<StageChunk> bind_chunks(const StageDecoders& decoders,
                                    const model::ParameterStore& store, bool with_gradients);

// What all operations of a step share.
struct StepWork {
  std::span<const StageChunk> chunks;
  const model::HeadOptions& head;
  std::span<const Sample> samples;
  std::span<const std::vector<int64_t>> microbatches;  // of this rank: indices of samples
  std::span<const std::vector<float>> token_weights;   // as token_weights gives them
  const ops::PolicyLossOptions& loss;
  tensor::Tensor metrics;  // [kNumLossMetrics] F64, added to
  // What the layers of a chunk keep of a microbatch for backward; asked before its forward.
  std::function<model::KeepPlan(size_t chunk, int64_t microbatch)> choose_keep;
  const MtpWork* mtp = nullptr;  // of the stage with the head; null: no MTP layer is trained
  const model::RouterBalances& routers = no_routers();
  // Of the last backward alone: gradients are final behind it, unless it leaves some.
  StageHooks last_backward = {};
  std::span<ops::DeferredProducts> deferred = {};  // as many as the operations name
  MeasuredRank measured = MeasuredRank::kLargest;  // in planning contexts
};

// Between stages, on the stream. Ranks of a pipeline agree on what is empty, which is not sent.
void send_rows(const ops::Context& ctx, tensor::Tensor rows, int peer);
void receive_rows(const ops::Context& ctx, tensor::Tensor rows, int peer);

// The first backward of a chunk writes its gradients, the others add to them, in the order of the
// list. Those of MTP layers go with the forwards, so that they are final before the last backward
// begins. What stages send each other goes through the pp group of the slots' contexts.
void run_operations(std::span<const Operation> operations, const StepWork& work,
                    std::span<Slot> slots);

}  // namespace slimexx::train
