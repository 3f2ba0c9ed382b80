// Hands the trainer's weights over to the engine, by a plan between their layouts that is made
// once. Where both read the same memory the plan has aliases only, and nothing moves. Main thread.
#pragma once
#include <cstdint>

#include "slimexx/dist/collective.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/weight_plan.h"

namespace slimexx::rl {

// A layout, and what this rank holds of it. The store is borrowed.
struct HeldWeights {
  model::Layout layout;
  model::ParameterStore& store;
};

// This rank's plan from `trainer` to `engine`. `host` has the ranks of both, on host memory;
// collective.
model::WeightPlan plan_hand_over(const model::Layout& trainer, const model::Layout& engine,
                                 dist::Collective& host);

class WeightHandOver {
 public:
  // Takes the staging memory of what moves between ranks by `plan`, which is of the two layouts and
  // this rank. `ranks` are those of both layouts.
  WeightHandOver(HeldWeights trainer, HeldWeights engine, model::WeightPlan plan,
                 dist::Collective& ranks, tensor::Device device);
  // Returns when what moves is there, so that its time is known. Collective.
  model::WeightTraffic move();
  // The hash of the engine's weights, read anew on both sides. Throws AgreedError(kCheck) naming
  // the first tensor that differs from the trainer's, or between ranks that hold copies of it.
  // Collective over `host`, which has the ranks of the layouts.
  uint64_t check(dist::Collective& host) const;

 private:
  HeldWeights trainer_, engine_;
  dist::Collective& ranks_;
  model::WeightPlan plan_;
  tensor::Arena staging_;
};

}  // namespace slimexx::rl
