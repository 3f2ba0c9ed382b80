// Treatment of responses that are too long, as in DAPO (arXiv:2503.14476, 3.4): truncated responses
// may be masked, and responses that end near the limit may get a lower reward.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/rl/run_config.h"
#include "slimexx/sample/sample.h"

namespace slimexx::rl {

// Added to the reward of a response of `length` tokens: 0 up to `buffer` tokens before `limit`,
// then linear down to -factor at the limit.
double overlong_penalty(int64_t length, int64_t limit, int64_t buffer, double factor);

// Sets length penalties and loss masks as rl.overlong_* say. A truncated response that is masked
// still counts in the mean of its group.
void treat_overlong(const RunConfig& config, std::span<sample::Sample> samples);

}  // namespace slimexx::rl
