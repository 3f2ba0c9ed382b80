#include "slimexx/dist/world.h"

#include <cstdlib>
#include <utility>

#include "dist/mpi_backend.h"
#include "slimexx/base/error.h"

namespace slimexx::dist {
World::World() : launch_(find_launch([](const char* name) { return std::getenv(name); })) {
  if (!launch_.is_for_mpi) return;
#ifdef SLX_WITH_MPI
  LocalPosition local;
  ranks_ = Collective(start_mpi(local), Collective::kAllRanks);
  ranks_.set_name("world");
  local_rank_ = local.rank;
  first_local_rank_ = local.first;
  uses_mpi_ = true;
#else
  if (launch_.num_tasks > 1)
    throw Error(ErrorCode::kEnvironment, "started by a launcher, but this build has no MPI",
                "build with -DSLX_WITH_MPI=ON, or start one process");
#endif
}

World::World(Collective thread_rank)
    : ranks_(std::move(thread_rank)), local_rank_(ranks_.rank()), are_threads_(true) {
  ranks_.set_name("world");
}

World::~World() {
  ranks_ = Collective();
#ifdef SLX_WITH_MPI
  if (uses_mpi_) finish_mpi();
#endif
}

std::optional<Error> World::lone_rank_fault() const {
  return size() == 1 && !are_threads_ ? find_lone_rank_fault(launch_) : std::nullopt;
}

void World::abort(int status) {
  if (size() == 1) return;
  if (are_threads_) std::_Exit(status);
#ifdef SLX_WITH_MPI
  if (uses_mpi_) abort_mpi(status);
#endif
}

std::string mpi_version() {
#ifdef SLX_WITH_MPI
  return mpi_library_version();
#else
  return {};
#endif
}

}  // namespace slimexx::dist
