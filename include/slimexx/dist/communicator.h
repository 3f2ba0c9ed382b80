// Ranks and what they exchange on host memory. Over MPI when the program was started by a launcher,
// otherwise one rank that needs no MPI at all. Collectives are called by the main thread of every
// rank in the same order; sums add in rank order (numerics contract, N6), so a result depends on
// the number of ranks but never on timing. A failed MPI call throws Error(kRun) naming the call.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slimexx/dist/ranges.h"
#include "slimexx/dist/shared_counter.h"

namespace slimexx::dist {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  // The root's bytes on every rank.
  virtual std::string broadcast(const std::string& bytes, int root) = 0;
  // Every rank's bytes, by rank.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  // Element-wise sum in rank order; maximum.
  virtual void all_reduce_sum(std::span<double> values) = 0;
  virtual void all_reduce_max(std::span<double> values) = 0;
  // After it, data[ranges[rank]] holds the sum over ranks, added in rank order; the rest is
  // undefined. `scratch` holds at least size() * max range elements.
  virtual void reduce_scatter_sum(std::span<float> data, std::span<const Range> ranges,
                                  std::span<float> scratch) = 0;
  // Each rank contributes bytes ranges[rank] * element_bytes of `data`; afterwards all have all.
  virtual void all_gather_ranges(void* data, int64_t element_bytes,
                                 std::span<const Range> ranges) = 0;
  // Collective: makes a counter that starts at 0. It must go before its communicator; its end waits
  // for nobody, so that the failure of one rank can be told.
  virtual std::unique_ptr<SharedCounter> make_counter() = 0;
};

// The whole job. Keep one for the program's life: initialises MPI if a launcher is seen in the
// environment (Open MPI, PMI, PMIx, Slurm step with more than one task), finalises it when
// destroyed.
class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  Communicator& communicator() { return *communicator_; }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int local_rank() const { return local_rank_; }  // among the ranks of this host
  int local_size() const { return local_size_; }
  // Ends all ranks with this exit status; of a single rank, returns (the caller exits).
  void abort(int status);

 private:
  std::unique_ptr<Communicator> communicator_;
  int local_rank_ = 0, local_size_ = 1;
  bool uses_mpi_ = false;
};

// One rank without MPI, for tests and tools.
std::unique_ptr<Communicator> make_single_communicator();

// `size` ranks as threads of this process, for tests of rank-dependent code without a launcher.
void run_threaded_ranks(int size, const std::function<void(Communicator&)>& body);

}  // namespace slimexx::dist
