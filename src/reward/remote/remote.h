// `remote`: rewards of a service over HTTP.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "slimexx/reward/rewards.h"

namespace slimexx::reward {

// Other times are for tests, which need not wait.
struct RemoteClock {
  double backoff_unit_s = 1;  // between tries: min(2^k, 30) + U(0, 1) units
  double warn_interval_s = 30;
  double stall_s = 0.5;     // to be connected, while the service takes other connections
  double tell_after_s = 5;  // without a grade, that the run waits for the service
};

// Throws Error(kUsage) where rm_url or a limit is unusable. Logs a warning when the service fails,
// and every warn_interval_s while it does.
std::unique_ptr<Grader> make_remote_grader(const RewardOptions& options, RemoteClock clock = {});

// A grade out of the service's answer: a number, or an object that has it under `reward_key` (if
// that is empty: "reward" or "score"). Throws Error(kRun) saying what is wrong with it.
Grade read_remote_grade(std::string_view body, const std::string& reward_key);

}  // namespace slimexx::reward
