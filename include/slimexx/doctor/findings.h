// Finds what is wrong, missing or slow in a launch.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

enum class Severity : uint8_t {
  kFault,   // a run fails or uses the wrong device
  kAdvice,  // a run works, but slower than it could, or close to a limit
};

struct Finding {
  Severity severity = Severity::kAdvice;
  std::string where, what, remedy;  // "rank 3 (node7)"
};

// Requirements of a run; 0: unknown.
struct Needs {
  double checkpoint_bytes = 0;  // all kept checkpoints in the folder
};

// Findings with faults first. Each kind of finding occurs once and names the ranks it affects.
// `ranks` is indexed by rank and has at least one element.
std::vector<Finding> find_problems(std::span<const RankFacts> ranks, const Needs& needs);

}  // namespace slimexx::doctor
