// Starting and ending MPI, kept apart so that mpi.h is seen by one source only.
#pragma once
#include <memory>
#include <string>

#include "dist/backend.h"

namespace slimexx::dist {

struct LocalPosition {
  int rank = 0, size = 1;
  int first = 0;  // the world's number of local rank 0
};

// MPI_Init and the world; null if that is one rank.
std::unique_ptr<Backend> start_mpi(LocalPosition& local);
void finish_mpi();
void abort_mpi(int status);
std::string mpi_library_version();  // its first words

}  // namespace slimexx::dist
