// The ranks of engines, and the model that each runs.
#include "rl/training/training_run.h"
#include "slimexx/dist/make_once.h"
#include "slimexx/model/families.h"

namespace slimexx::rl {

EngineGrid make_engine_grid(const Session& session) {
  const EngineShape& shape = session.engine_shape;
  const tensor::Device device = session.request.device;
  EngineGrid grid;
  if (shape.num_ranks == 1 || !session.generates()) return grid;
  const auto make_on = [&](tensor::Device where) {
    return std::make_unique<dist::ProcessGrid>(session.peers, shape.sizes, where);
  };
  grid.on_device = make_on(device);
  if (!device.is_cpu()) grid.on_host = make_on({});
  return grid;
}

EngineModel make_engine_model(const Session& session, const TrainerSide& trainer_side,
                              int64_t max_positions) {
  const LoadedModel& policy = trainer_side.policy;
  const RankRoles& roles = session.roles;
  const EngineShape& shape = session.engine_shape;
  const model::ModelSpec spec = make_engine_spec(shape, policy.spec);
  const tensor::Device device = session.request.device;
  EngineModel m;
  if (!roles.are_apart &&
      holds_trained_shards(shape, session.model_ranks.grid.sizes(), policy.spec)) {
    m.layout = policy.layout;
    m.store = policy.store.get();
    m.decoder = trainer_side.decoders[0].get();
  } else {
    m.layout = *dist::make_once(session.communicator, [&] {
      return spread_served(roles,
                           model::make_layout({model::list_parameters(spec)},
                                              dist::GridShape(roles.num_generators, shape.sizes)));
    });
    m.own_store = std::make_unique<model::ParameterStore>(
        *m.layout.ranks[static_cast<size_t>(session.world.rank())], device, false);
    m.store = m.own_store.get();
    if (!session.generates()) return m;
    m.own_decoder = std::make_unique<model::Decoder>(
        spec, device, max_positions, model::whole_model(spec), shape.sizes, shape.leaves);
    m.decoder = m.own_decoder.get();
  }
  m.weights = model::bind_weights(*m.store, spec);
  return m;
}

}  // namespace slimexx::rl
