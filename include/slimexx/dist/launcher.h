// Detects the launcher of this process from the environment.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "slimexx/base/error.h"

namespace slimexx::dist {

using Environment = std::function<const char*(const char* name)>;  // like std::getenv

struct Launch {
  std::string launcher;     // "srun"; empty: none
  int64_t num_tasks = 0;    // as the launcher declares; 0: unknown
  std::string variable;     // the variable that identified the launcher
  bool is_for_mpi = false;  // MPI knows the other ranks
  bool is_certain = true;   // false: other tools set the variable too
};

Launch find_launch(const Environment& environment);

// An error if the launcher started several processes but the world has one rank: each process would
// do the whole work alone. Empty if one process is right: without a launcher, in a Slurm allocation
// outside `srun`, or if the launcher started one process.
std::optional<Error> find_lone_rank_fault(const Launch& launch);

}  // namespace slimexx::dist
