// Builds a rank's engine, and the model as the engine runs it: the same for a run and for its plan.
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

// The weights of a rank's engine: the trainer's, if the rank trains exactly what its engine holds;
// otherwise the engine's own.
struct EngineModel {
  model::Layout layout;  // only for engines with weights of their own; otherwise empty
  std::unique_ptr<model::ParameterStore> own_store;
  std::unique_ptr<model::Decoder> own_decoder;
  model::ParameterStore* store = nullptr;
  const model::Decoder* decoder = nullptr;  // null: this rank only trains
  model::ModelParameters weights = {};
};

// The layout of `engine_spec` (make_engine_spec) over all ranks of the world; disaggregated
// trainers hold nothing.
model::Layout make_engine_layout(const RankInputs& inputs, const model::ModelSpec& engine_spec);

// `policy_spec` is the whole model; `decoders` and `policy` are this rank's part in training
// (without parameters if the rank does not train). `engine_layout` is called only for an engine
// with weights of its own; it returns the result of make_engine_layout, which ranks of one process
// may share.
EngineModel make_engine_model(
    const RankInputs& inputs, const model::ModelSpec& policy_spec, const Decoders& decoders,
    model::ParameterStore& policy, int64_t max_positions,
    const std::function<model::Layout(const model::ModelSpec&)>& engine_layout);

// Moves weights from the trainer's layout to the engine's by `plan`, this rank's plan. `ranks` is
// the world group on the device.
std::unique_ptr<WeightHandOver> make_hand_over(const model::Layout& trainer,
                                               model::ParameterStore& policy,
                                               const EngineModel& engine, model::WeightPlan plan,
                                               dist::Collective& ranks, tensor::Device device);

}  // namespace slimexx::rl
