// The report of `slimexx doctor`, which fits one screen.
#pragma once
#include <span>
#include <string>

#include "slimexx/doctor/findings.h"

namespace slimexx::doctor {

// One line per host, the links, and the findings. Lines end with a newline.
std::string format_report(std::span<const RankFacts> ranks, std::span<const Finding> findings,
                          const std::string& folder);

}  // namespace slimexx::doctor
