#include "rl/assembly/trainer_part.h"

namespace slimexx::rl {

Decoders make_policy_decoders(const RankInputs& inputs, const model::ModelSpec& spec,
                              int64_t max_positions) {
  return make_decoders(spec, inputs.model_ranks, inputs.device, max_positions,
                       inputs.engine_shape.leaves);
}

std::unique_ptr<train::Trainer> make_trainer(const RankInputs& inputs, const Decoders& decoders,
                                             model::ParameterStore& policy, dist::Collective& host,
                                             const dist::Groups& groups) {
  const RunConfig& config = inputs.config;
  return std::make_unique<train::Trainer>(
      borrow(decoders), policy, host, groups, config.train, config.optimizer,
      static_cast<float>(config.training_temperature()), inputs.device);
}

}  // namespace slimexx::rl
