// The grid of engines that span several ranks.
#include "rl/training/training_run.h"
#include "slimexx/rollout/decode_rates.h"

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
  grid.decode_rates =
      rollout::agree_on_rates(grid.host_groups(), tensor::read_decode_rates(device));
  return grid;
}

}  // namespace slimexx::rl
