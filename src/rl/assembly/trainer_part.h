// The trainer of a rank, for a run and for its plan.
#pragma once
#include <cstdint>
#include <memory>

#include "rl/assembly/frozen_model.h"
#include "rl/assembly/rank_inputs.h"
#include "slimexx/dist/groups.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// Decoders for the stages that this rank trains.
Decoders make_policy_decoders(const RankInputs& inputs, const model::ModelSpec& spec,
                              int64_t max_positions);
// `host`: the group of the ranks that train, on host memory. Collective.
std::unique_ptr<train::Trainer> make_trainer(const RankInputs& inputs, const Decoders& decoders,
                                             model::ParameterStore& policy, dist::Collective& host,
                                             const dist::Groups& groups);

}  // namespace slimexx::rl
