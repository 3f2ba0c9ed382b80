// Speculative decoding: the keys of a run that guess tokens (rollout/engine.h), and what is wrong
// with them.
#pragma once
#include <functional>
#include <string>

#include "slimexx/rl/run_config.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rl {

bool asks_mtp(const RolloutOptions& options);  // drafts come from the model's own layer
bool speculates(const RolloutOptions& options);

// Adds what is wrong with the keys, whatever the model.
void check_speculation(const RolloutOptions& options,
                       const std::function<void(const char* key, const std::string& reason,
                                                const std::string& hint)>& fault);
// Throws Error(kUsage) if the layer that is to guess is not in the model.
void check_speculation(const RolloutOptions& options, const model::ModelSpec& spec,
                       const std::string& directory);

// Of checked options.
void set_speculation(const RolloutOptions& options, rollout::EngineOptions& engine);

}  // namespace slimexx::rl
