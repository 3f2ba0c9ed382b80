#include "slimexx/dist/launcher.h"

#include <fmt/core.h>

#include <cstdlib>

namespace slimexx::dist {
namespace {

struct Variable {
  const char* name;
  const char* launcher;
};

// Variables of MPI launchers; the first that is set wins. They are tested before Slurm's variables,
// which ranks of mpirun may have too: mpirun starts its daemons with srun.
constexpr Variable kMpiVariables[] = {
    {"OMPI_COMM_WORLD_SIZE", "mpirun"},
    {"PMI_SIZE", "the launcher of another MPI"},
    {"MV2_COMM_WORLD_SIZE", "the launcher of another MPI"},
};
constexpr const char* kSlurmTasks = "SLURM_STEP_NUM_TASKS";  // SLURM_NTASKS: whole allocation

bool is_set(const Environment& environment, const char* name) {
  return environment(name) != nullptr;
}

int64_t number_of(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text == nullptr ? 0 : std::atoll(text);
}

std::string remedy_of(const Launch& launch) {
  if (!launch.is_for_mpi)
    return "start the ranks with mpirun -np N slimexx ..., or with srun --mpi=pmix";
  const std::string start =
      launch.launcher == "srun"
          ? "srun --mpi=pmix (srun --mpi=list shows the available types), or mpirun"
          : "the mpirun of the MPI that the program was built with (see slimexx doctor)";
  return fmt::format(
      "start with {}; if each process should be a separate run: env -u {} slimexx ...", start,
      launch.variable);
}

}  // namespace

Launch find_launch(const Environment& environment) {
  for (const Variable& v : kMpiVariables) {
    if (!is_set(environment, v.name)) continue;
    return {v.launcher, number_of(environment, v.name), v.name, true, true};
  }
  const int64_t slurm_tasks = number_of(environment, kSlurmTasks);
  if (slurm_tasks > 1) return {"srun", slurm_tasks, kSlurmTasks, true, true};
  if (is_set(environment, "PMIX_RANK"))
    return {"a launcher with PMIx", number_of(environment, "PMIX_RANK") + 1, "PMIX_RANK", true,
            true};
  // Variables of torchrun. Other tools set WORLD_SIZE and RANK too, but count hosts or containers.
  if (is_set(environment, "WORLD_SIZE") && is_set(environment, "RANK"))
    return {"torchrun", number_of(environment, "WORLD_SIZE"), "WORLD_SIZE", false,
            is_set(environment, "TORCHELASTIC_RUN_ID")};
  return {};
}

std::optional<Error> find_lone_rank_fault(const Launch& launch) {
  if (launch.num_tasks < 2) return std::nullopt;
  const bool counts = launch.variable != "PMIX_RANK";  // PMIX_RANK is only a lower bound
  return Error(
      ErrorCode::kEnvironment,
      fmt::format("{} started {}{} processes ({} is {}), but each of them runs alone: {}",
                  launch.launcher, counts ? "" : "at least ", launch.num_tasks, launch.variable,
                  counts ? launch.num_tasks : launch.num_tasks - 1,
                  launch.is_for_mpi ? "MPI sees only one" : "this build uses MPI for ranks"),
      remedy_of(launch));
}

}  // namespace slimexx::dist
