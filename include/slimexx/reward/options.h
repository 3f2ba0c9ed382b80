// The section `reward` of the configuration (docs/reference/config.md).
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/config/config.h"

namespace slimexx::reward {

struct RewardOptions {
  std::string rm_type;     // no default: each grader needs responses of a different form
  std::string reward_key;  // uses values[reward_key] as the reward; empty: the grader's own
  std::string rm_url;      // for `remote`
  double rm_timeout_s = 120;
  int64_t rm_retries = 10;
  int64_t rm_max_connections = 64;
  std::string on_failure = "mask";  // for a failed grade: stop or mask
};

void bind(config::Binder& binder, RewardOptions& options);

}  // namespace slimexx::reward
