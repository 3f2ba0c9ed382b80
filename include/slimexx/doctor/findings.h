// What is wrong, missing or slow in a launch.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

enum class Severity : uint8_t {
  kFault,   // a run fails, or computes on the wrong thing
  kAdvice,  // a run works, and is slower than it could be or close to a limit
};

struct Finding {
  Severity severity = Severity::kAdvice;
  std::string where, what, remedy;  // "rank 3 (node7)"
};

// What a run would ask for; 0: not known.
struct Needs {
  double checkpoint_bytes = 0;  // of all checkpoints that are kept, in the folder
};

// Faults first, each kind of finding once: it names the ranks that it is about. `ranks` by rank, at
// least one.
std::vector<Finding> find_problems(std::span<const RankFacts> ranks, const Needs& needs);

}  // namespace slimexx::doctor
