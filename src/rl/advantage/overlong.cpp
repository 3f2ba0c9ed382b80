#include "rl/advantage/overlong.h"

#include <algorithm>

namespace slimexx::rl {

double overlong_penalty(int64_t length, int64_t limit, int64_t buffer, double factor) {
  const int64_t excess = length - (limit - buffer);
  if (buffer == 0 || excess <= 0) return 0;
  return -factor * static_cast<double>(std::min(excess, buffer)) / static_cast<double>(buffer);
}

void treat_overlong(const RunConfig& config, std::span<sample::Sample> samples) {
  const RlOptions& rl = config.rl;
  for (sample::Sample& s : samples) {
    s.length_penalty = overlong_penalty(s.response_length, config.rollout.rollout_max_response_len,
                                        rl.overlong_buffer_len, rl.overlong_penalty_factor);
    if (rl.overlong_filtering && s.status == sample::SampleStatus::kTruncated)
      s.loss_mask.assign(s.loss_mask.size(), 0);
  }
}

}  // namespace slimexx::rl
