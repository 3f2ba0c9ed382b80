// Hands the trainer's weights over to the engine by a plan between their layouts, made once. If
// trainer and engine use the same memory, the plan has aliases only and nothing moves. Main thread
// only.
#pragma once
#include <cstdint>

#include "slimexx/dist/collective.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/weight_plan.h"

namespace slimexx::rl {

// A layout, and the store with this rank's part of it. The store is borrowed.
struct HeldWeights {
  model::Layout layout;
  model::ParameterStore& store;
};

// This rank's plan from `trainer` to `engine`. `host`: the ranks of both layouts, on host memory.
// Collective.
model::WeightPlan plan_hand_over(const model::Layout& trainer, const model::Layout& engine,
                                 dist::Collective& host);

class WeightHandOver {
 public:
  // Allocates the staging memory for weights that move between ranks. `plan` is this rank's plan
  // between the two layouts; `ranks` are those of both layouts.
  WeightHandOver(HeldWeights trainer, HeldWeights engine, model::WeightPlan plan,
                 dist::Collective& ranks, tensor::Device device);
  // Returns when all moved weights have arrived, so that the time can be measured. Collective.
  model::WeightTraffic move();
  // Returns the hash of the engine's weights, computed anew for trainer and engine. Throws
  // AgreedError(kCheck) naming the first tensor that differs from the trainer's, or between ranks
  // that hold copies of it. Collective over `host`, the ranks of the layouts.
  uint64_t check(dist::Collective& host) const;

 private:
  HeldWeights trainer_, engine_;
  dist::Collective& ranks_;
  model::WeightPlan plan_;
  tensor::Arena staging_;
};

}  // namespace slimexx::rl
