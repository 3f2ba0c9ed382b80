// Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups whose samples all got the same
// reward teach nothing and are dropped, and prompts are drawn until a rollout is full.
//
// Groups are taken in the order of their prompts. Which response ends first has no say, so that
// short responses are not preferred, and any number of ranks takes the same samples.
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
  bool keeps_rest = false;  // of the first draw, if too few of it are kept: in the prompts' order
};
// The filter of a name, with or without slime's module before it; nothing if there is none.
std::optional<DynamicFilter> find_dynamic_filter(const std::string& name);

// Why samples of one prompt are dropped, as the metric is named: "zero_std_0.0", or "grader_failed"
// where fewer than two have a reward. Empty: they are kept. Rewards are those of the grader, as
// slime and DAPO have it: a length penalty keeps no group.
std::string find_drop_reason(std::span<const Sample> group);

// The samples of a rollout, and what became of the groups that were generated for it.
struct DrawnSamples {
  std::vector<Sample> samples = {};                  // by group and sample, ascending
  int64_t num_drawn_groups = 0;                      // 0: nothing was filtered
  std::map<std::string, int64_t> drop_reasons = {};  // with the number of groups
  // Of all responses that were generated for it, those of dropped groups too.
  int64_t num_generated_tokens = 0, longest_response = 0;
};

// Fills a rollout with options.rollout_batch_size groups. draw(n) generates n more, whose samples
// stand by group: first over_sampling_batch_size, then at most so many. `most_dropped`: so many
// dropped in a row are an AgreedError(kRun).
DrawnSamples fill_rollout(const DynamicFilter& filter, const RolloutOptions& options,
                          int64_t most_dropped,
                          const std::function<std::vector<Sample>(int64_t)>& draw,
                          const std::string& label);

// Adds what is wrong with the keys of dynamic sampling, which stand in `options`.
void check_dynamic_sampling(const RolloutOptions& options,
                            const std::function<void(const char* key, const std::string& reason,
                                                     const std::string& hint)>& fault);

}  // namespace slimexx::rl
