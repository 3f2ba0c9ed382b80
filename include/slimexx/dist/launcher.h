// What started this process, as its environment tells.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "slimexx/base/error.h"

namespace slimexx::dist {

using Environment = std::function<const char*(const char* name)>;  // as std::getenv

struct Launch {
  std::string launcher;     // "srun"; empty: none
  int64_t num_tasks = 0;    // that it says it started; 0: it says nothing
  std::string variable;     // that says so
  bool is_for_mpi = false;  // MPI is to be asked for the other ranks
  bool is_certain = true;   // false: others than this launcher set the variable too
};

Launch find_launch(const Environment& environment);

// Why a world of one rank is not what the launcher started: each of its processes would do the
// whole work alone. Nothing where one process is right: without a launcher, in an allocation of
// Slurm's outside `srun`, under a launcher of one process.
std::optional<Error> find_lone_rank_fault(const Launch& launch);

}  // namespace slimexx::dist
