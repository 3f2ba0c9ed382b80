// What becomes of responses that are too long, as in DAPO (arXiv:2503.14476, 3.4): those that were
// cut off may train nothing, and those that end near the limit may get less of a reward.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/rl/run_config.h"
#include "slimexx/sample/sample.h"

namespace slimexx::rl {

// Added to the reward of a response of `length` tokens: 0 until `buffer` tokens before `limit`,
// then evenly down to -factor at the limit.
double overlong_penalty(int64_t length, int64_t limit, int64_t buffer, double factor);

// Sets what rl.overlong_* ask for: length penalties, and loss masks of 0. What was cut off and
// trains nothing still counts in the mean of its group.
void treat_overlong(const RunConfig& config, std::span<sample::Sample> samples);

}  // namespace slimexx::rl
