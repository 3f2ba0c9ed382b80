// The model as a rank's engine runs it, and the engine: built alike for a run and for its plan.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "rl/assembly/frozen_model.h"
#include "rl/assembly/rank_inputs.h"
#include "rl/generation/weight_hand_over.h"
#include "slimexx/model/layout.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rl {

// The trainer's weights where the rank trains what its engine holds, otherwise its own.
struct EngineModel {
  model::Layout layout;  // of engines that hold weights of their own; otherwise empty
  std::unique_ptr<model::ParameterStore> own_store;
  std::unique_ptr<model::Decoder> own_decoder;
  model::ParameterStore* store = nullptr;
  const model::Decoder* decoder = nullptr;  // null: this rank only trains
  model::ModelParameters weights = {};
};

// What each rank of the world holds of `engine_spec` (make_engine_spec): trainers that are apart
// hold nothing.
model::Layout make_engine_layout(const RankInputs& inputs, const model::ModelSpec& engine_spec);

// `policy_spec` is the whole model, `decoders` and `policy` what this rank trains of it (without
// parameters where it does not train). `engine_layout` is called only for an engine that holds
// weights of its own; it gives make_engine_layout's, which ranks of one process may share.
EngineModel make_engine_model(
    const RankInputs& inputs, const model::ModelSpec& policy_spec, const Decoders& decoders,
    model::ParameterStore& policy, int64_t max_positions,
    const std::function<model::Layout(const model::ModelSpec&)>& engine_layout);

// From the trainer's layout to the engine's, by `plan` of this rank. `ranks` is the world on the
// device.
std::unique_ptr<WeightHandOver> make_hand_over(const model::Layout& trainer,
                                               model::ParameterStore& policy,
                                               const EngineModel& engine, model::WeightPlan plan,
                                               dist::Collective& ranks, tensor::Device device);

}  // namespace slimexx::rl
