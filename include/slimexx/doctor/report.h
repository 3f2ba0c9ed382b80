// The one screen that `slimexx doctor` prints.
#pragma once
#include <span>
#include <string>

#include "slimexx/doctor/findings.h"

namespace slimexx::doctor {

// A line a host, the links, and the findings. Lines end with a newline.
std::string format_report(std::span<const RankFacts> ranks, std::span<const Finding> findings,
                          const std::string& folder);

}  // namespace slimexx::doctor
