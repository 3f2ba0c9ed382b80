// Speculative decoding: the keys of a run for draft tokens (rollout/engine.h), and checks of them.
#pragma once
#include <functional>
#include <string>

#include "slimexx/rl/run_config.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rl {

bool asks_mtp(const RolloutOptions& options);  // drafts come from the model's own MTP layer
bool speculates(const RolloutOptions& options);

// Adds faults of the keys that do not depend on the model.
void check_speculation(const RolloutOptions& options,
                       const std::function<void(const char* key, const std::string& reason,
                                                const std::string& hint)>& fault);
// Throws Error(kUsage) if the model lacks the MTP layer that the drafts need.
void check_speculation(const RolloutOptions& options, const model::ModelSpec& spec,
                       const std::string& directory);

// Sets the engine's options from checked options of the run.
void set_speculation(const RolloutOptions& options, rollout::EngineOptions& engine);

}  // namespace slimexx::rl
