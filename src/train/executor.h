// Runs the operations of a step over slots: each microbatch in flight has one, with an arena of its
// own, so that the oldest can be freed first. The same code measures, in planning contexts.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "mtp_pass.h"
#include "operations.h"
#include "passes.h"

namespace slimexx::train {

struct Slot {
  ops::Context ctx;  // its arena is the slot's
  int64_t microbatch = -1;
  std::optional<InFlight> in_flight = {};  // from forward to backward
};

// Of a model without experts.
inline const model::RouterBalances& no_routers() {
  static const model::RouterBalances none;
  return none;
}

// What all operations of a step share.
struct StepWork {
  const model::Decoder& decoder;
  const model::ModelParameters& weights;
  const model::ModelParameters& gradients;
  const model::HeadOptions& head;
  std::span<const Sample> samples;
  std::span<const std::vector<int64_t>> microbatches;  // of this rank: indices of samples
  std::span<const std::vector<float>> token_weights;   // as token_weights gives them
  const ops::PolicyLossOptions& loss;
  tensor::Tensor metrics;  // [kNumLossMetrics] F64, added to
  // What the layers of a microbatch keep for backward; asked before its forward.
  std::function<model::KeepPlan(std::span<const int64_t> indices)> choose_keep;
  const MtpWork* mtp = nullptr;  // null: no MTP layer is trained
  const model::RouterBalances& routers = no_routers();
  StageHooks last_backward = {};  // of the last backward alone: gradients are final behind it
};

// The first backward writes the gradients, the others add to them, in the order of the list. Those
// of MTP layers go with the forwards, so that they are final before the last backward begins.
void run_operations(std::span<const Operation> operations, const StepWork& work,
                    std::span<Slot> slots);

}  // namespace slimexx::train
