// The whole job: every rank that runs, over MPI when the program was started by a launcher,
// otherwise one rank that needs no MPI at all.
#pragma once
#include <optional>
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/dist/launcher.h"

namespace slimexx::dist {

// Keep one for the program's life: initialises MPI if a launcher is seen in the environment (Open
// MPI, PMI, PMIx, Slurm step with more than one task), finalises it when destroyed.
class World {
 public:
  World();
  // One of several ranks that are threads of this process.
  explicit World(Collective thread_rank);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  Collective& ranks() { return ranks_; }  // all of them, on host memory
  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  int local_rank() const { return local_rank_; }  // among the ranks of this host
  int local_size() const { return local_size_; }
  // The rank of the first one on this host.
  int first_local_rank() const { return first_local_rank_; }
  bool are_threads() const { return are_threads_; }
  // A single rank of several processes that a launcher started; see find_lone_rank_fault.
  std::optional<Error> lone_rank_fault() const;
  const Launch& launch() const { return launch_; }
  // Ends all ranks with this exit status; of a single rank, returns (the caller exits).
  void abort(int status);

 private:
  Launch launch_;
  Collective ranks_;
  int local_rank_ = 0, local_size_ = 1, first_local_rank_ = 0;
  [[maybe_unused]] bool uses_mpi_ = false;  // not read without MPI
  bool are_threads_ = false;
};

// "Open MPI v4.1.4" or the like, of the library that is loaded; empty in a build without MPI.
std::string mpi_version();

}  // namespace slimexx::dist
