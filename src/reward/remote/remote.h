// `remote`: gets rewards from a service over HTTP.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "slimexx/reward/rewards.h"

namespace slimexx::reward {

// Times of the remote grader. Tests set shorter ones.
struct RemoteClock {
  double backoff_unit_s = 1;  // between tries: min(2^k, 30) + U(0, 1) units
  double warn_interval_s = 30;
  double stall_s = 0.5;     // time without being accepted, while others are, that counts as a stall
  double tell_after_s = 5;  // after this long without a grade, log that the run waits
};

// Throws Error(kUsage) if rm_url or a limit is unusable. Logs a warning when the service fails, and
// every warn_interval_s while the failure lasts.
std::unique_ptr<Grader> make_remote_grader(const RewardOptions& options, RemoteClock clock = {});

// Reads a grade from the service's answer: a number, or an object that has it under `reward_key`
// (if empty: "reward" or "score"). Otherwise throws Error(kRun) with the reason.
Grade read_remote_grade(std::string_view body, const std::string& reward_key);

}  // namespace slimexx::reward
