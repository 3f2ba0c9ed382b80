#include <cstdlib>

#include "mpi_communicator.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/communicator.h"

namespace slimexx::dist {
namespace {

// Did a launcher start this process as one of several ranks?
bool launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks != nullptr && std::atoi(tasks) > 1;
}

}  // namespace

World::World() {
  if (!launched()) {
    communicator_ = make_single_communicator();
    return;
  }
#ifdef SLX_WITH_MPI
  LocalPosition local;
  communicator_ = start_mpi(local);
  local_rank_ = local.rank;
  local_size_ = local.size;
  uses_mpi_ = true;
#else
  throw Error(ErrorCode::kEnvironment, "started by a launcher, but this build has no MPI",
              "build with -DSLX_WITH_MPI=ON, or start one process");
#endif
}

World::~World() {
  communicator_.reset();
#ifdef SLX_WITH_MPI
  if (uses_mpi_) finish_mpi();
#endif
}

void World::abort(int status) {
#ifdef SLX_WITH_MPI
  if (uses_mpi_ && communicator_->size() > 1) abort_mpi(status);
#endif
  (void)status;
}

}  // namespace slimexx::dist
