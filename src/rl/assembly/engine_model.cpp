#include "rl/assembly/engine_model.h"

#include <utility>

#include "slimexx/model/encoding.h"
#include "slimexx/model/families.h"

namespace slimexx::rl {

model::Layout make_engine_layout(const RankInputs& inputs, const model::ModelSpec& engine_spec) {
  return spread_served(
      inputs.roles, model::without_plain(model::make_layout(
                        {model::list_parameters(engine_spec)},
                        dist::GridShape(inputs.roles.num_generators, inputs.engine_shape.sizes))));
}

EngineModel make_engine_model(
    const RankInputs& inputs, const model::ModelSpec& policy_spec, const Decoders& decoders,
    model::ParameterStore& policy, int64_t max_positions,
    const std::function<model::Layout(const model::ModelSpec&)>& engine_layout) {
  const EngineShape& shape = inputs.engine_shape;
  const model::ModelSpec spec = make_engine_spec(shape, policy_spec);
  EngineModel m;
  if (!inputs.roles.are_apart &&
      holds_trained_shards(shape, inputs.model_ranks.grid.sizes(), policy_spec)) {
    m.store = &policy;
    m.decoder = decoders[0].get();
  } else {
    m.layout = engine_layout(spec);
    m.own_store = std::make_unique<model::ParameterStore>(
        *m.layout.ranks[static_cast<size_t>(inputs.rank)], inputs.device, false);
    m.store = m.own_store.get();
    if (!inputs.generates()) return m;
    m.own_decoder = std::make_unique<model::Decoder>(
        spec, inputs.device, max_positions, model::whole_model(spec), shape.sizes, shape.leaves);
    m.decoder = m.own_decoder.get();
  }
  m.weights = model::bind_weights(*m.store, spec);
  return m;
}

std::unique_ptr<WeightHandOver> make_hand_over(const model::Layout& trainer,
                                               model::ParameterStore& policy,
                                               const EngineModel& engine, model::WeightPlan plan,
                                               dist::Collective& ranks, tensor::Device device) {
  const model::Layout& layout = engine.own_store ? engine.layout : trainer;
  return std::make_unique<WeightHandOver>(HeldWeights{trainer, policy},
                                          HeldWeights{layout, *engine.store}, std::move(plan),
                                          ranks, device);
}

}  // namespace slimexx::rl
