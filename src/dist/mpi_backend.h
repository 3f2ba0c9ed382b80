// Start and end of MPI. Separate, so that only one source includes mpi.h.
#pragma once
#include <memory>
#include <string>

#include "dist/backend.h"

namespace slimexx::dist {

struct LocalPosition {
  int rank = 0;
  int first = 0;  // world rank of local rank 0
};

// Calls MPI_Init and returns the world; null if the world has one rank.
std::unique_ptr<Backend> start_mpi(LocalPosition& local);
void finish_mpi();
void abort_mpi(int status);
std::string mpi_library_version();  // up to the first comma or newline

}  // namespace slimexx::dist
