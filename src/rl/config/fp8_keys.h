// The keys of FP8: numerics.fp8, its scales, and the keys for slime's flags, which set it.
#pragma once
#include "slimexx/config/config.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// Binds the keys in section `numerics`.
void bind_fp8(config::Binder& b, NumericsOptions& o);
// Binds rollout.quantization.
void bind_quantization(config::Binder& b, RolloutOptions& o);

// Sets numerics.fp8 to on if it is auto and the key of a flag asks for FP8. Adds a fault if the two
// contradict each other.
void settle_fp8(config::Config& config, RunConfig& run);
// Adds faults if a run with numerics.fp8: rollout_only would not correct for the difference of the
// log-probs.
void check_rollout_only(config::Config& config, const RunConfig& run);

}  // namespace slimexx::rl
