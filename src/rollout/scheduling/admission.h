// Checks of the engine: rejects options and requests that cannot be served.
#pragma once
#include <cstdint>

#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

// Throws Error(kUsage) naming the option. `max_positions` is the model's.
void check_options(const EngineOptions& options, int64_t max_positions, tensor::Device device);
// Throws Error(kRun) naming the request and its fault.
void check_request(const Request& request, int64_t max_sequence_tokens, int64_t vocab_size,
                   bool has_token_bytes);

}  // namespace slimexx::rollout
