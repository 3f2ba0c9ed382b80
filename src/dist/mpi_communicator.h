// Starting and ending MPI, kept apart so that mpi.h is seen by one source only.
#pragma once
#include <memory>

#include "slimexx/dist/communicator.h"

namespace slimexx::dist {

struct LocalPosition {
  int rank = 0, size = 1;
};

std::unique_ptr<Communicator> start_mpi(
    LocalPosition& local);  // MPI_Init and the world's communicator
void finish_mpi();
void abort_mpi(int status);

}  // namespace slimexx::dist
