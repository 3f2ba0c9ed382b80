// Facts about the host and the process, without GPUs.
#pragma once
#include <string>
#include <vector>

#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

void read_host_facts(RankFacts& facts);
// Parses a list as in /sys: "0-3,8" is 0, 1, 2, 3, 8. Stops at a malformed item.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace slimexx::doctor
