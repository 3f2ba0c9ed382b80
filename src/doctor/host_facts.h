// Of the machine and the process, without a GPU.
#pragma once
#include <string>
#include <vector>

#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

void read_host_facts(RankFacts& facts);
// "0-3,8" as in /sys: 0, 1, 2, 3, 8. What is no such list gives what stands before the fault.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace slimexx::doctor
