// Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups whose samples all got the same
// reward teach nothing and are dropped; prompts are drawn until a rollout is full.
//
// Groups are taken in the order of their prompts, not in the order in which responses end. So short
// responses are not preferred, and any number of ranks takes the same samples.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slimexx/rl/run_config.h"
#include "slimexx/sample/sample.h"

namespace slimexx::rl {

using sample::Sample;

struct DynamicFilter {
  bool keeps_rest = false;  // fill up with dropped groups of the first draw, in the prompts' order
};
// The filter of a name, with or without slime's module prefix; nothing if there is none.
std::optional<DynamicFilter> find_dynamic_filter(const std::string& name);

// The reason why the samples of one prompt are dropped, as in the metric's name: "zero_std_0.0", or
// "grader_failed" if fewer than two have a reward. Empty: they are kept. As in slime and DAPO,
// rewards are compared without length penalties.
std::string find_drop_reason(std::span<const Sample> group);

// The samples of a rollout, and statistics of all groups that were generated for it.
struct DrawnSamples {
  std::vector<Sample> samples = {};                  // by group and sample, ascending
  int64_t num_drawn_groups = 0;                      // 0: nothing was filtered
  std::map<std::string, int64_t> drop_reasons = {};  // number of groups by reason
  // over all responses that were generated, including dropped groups
  int64_t num_generated_tokens = 0, longest_response = 0;
};

// Fills a rollout with options.rollout_batch_size groups. draw(n) generates n more groups and
// returns their samples by group. The first draw has over_sampling_batch_size groups, later draws
// at most that many. `most_dropped` groups dropped in a row are an AgreedError(kRun).
DrawnSamples fill_rollout(const DynamicFilter& filter, const RolloutOptions& options,
                          int64_t most_dropped,
                          const std::function<std::vector<Sample>(int64_t)>& draw,
                          const std::string& label);

// Adds faults of the keys of dynamic sampling in `options`.
void check_dynamic_sampling(const RolloutOptions& options,
                            const std::function<void(const char* key, const std::string& reason,
                                                     const std::string& hint)>& fault);

}  // namespace slimexx::rl
