// All ranks of the job: over MPI if a launcher started the program, otherwise one rank without MPI.
#pragma once
#include <optional>
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/dist/launcher.h"

namespace slimexx::dist {

// Keep one World for the program's life: the constructor initializes MPI if the environment shows a
// launcher (Open MPI, PMI, PMIx, a Slurm step with more than one task); the destructor finalizes
// it.
class World {
 public:
  World();
  // For a rank that is a thread of this process.
  explicit World(Collective thread_rank);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  Collective& ranks() { return ranks_; }  // all ranks, on host memory
  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  int local_rank() const { return local_rank_; }  // among the ranks of this host
  // World rank of the first rank on this host.
  int first_local_rank() const { return first_local_rank_; }
  bool are_threads() const { return are_threads_; }
  // The error if a launcher started several processes but this world has one rank; see
  // find_lone_rank_fault.
  std::optional<Error> lone_rank_fault() const;
  const Launch& launch() const { return launch_; }
  // Ends all ranks with this exit status. With a single rank it returns, and the caller exits.
  void abort(int status);

 private:
  Launch launch_;
  Collective ranks_;
  int local_rank_ = 0, first_local_rank_ = 0;
  [[maybe_unused]] bool uses_mpi_ = false;  // unused without MPI
  bool are_threads_ = false;
};

// Version of the loaded library, such as "Open MPI v4.1.4"; empty in a build without MPI.
std::string mpi_version();

}  // namespace slimexx::dist
