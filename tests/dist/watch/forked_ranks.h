// Ranks that are processes without a launcher; a test may kill, stop and continue them.
#pragma once
#include <sys/types.h>
#include <cstdint>

#include <atomic>
#include <functional>
#include <vector>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

constexpr int kMostForkedRanks = 8;
constexpr size_t kForkedBytes = size_t{1} << 16;

// Memory shared by the test and all processes.
struct ForkedState {
  std::atomic<int> num_arrived{0}, num_barriers{0};  // counters of the Collective
  char bytes[kForkedBytes] = {};
  std::atomic<int> num_ready{0};     // each body increments it when ready
  std::atomic<bool> is_done{false};  // tells bodies to end normally
  std::atomic<bool> launcher_ends{false};
  std::atomic<int> num_told{0};  // reported first causes
  std::atomic<int> cause_rank{-1};
  char phase[32] = {}, call[32] = {}, what[512] = {};
  std::atomic<int64_t> value{0};
};

class ForkedRanks {
 public:
  // Each process runs `body` and then exits with status 0, or 1 if it throws.
  ForkedRanks(int size, const std::function<void(Collective&, ForkedState&)>& body);
  ~ForkedRanks();
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;
  ForkedState& state() { return *state_; }
  bool wait_until_ready();  // until all bodies have incremented num_ready
  void signal(int rank, int number);
  // Exit status, 128 + signal, or -1 if it still runs after `seconds`.
  int wait(int rank, double seconds);

 private:
  ForkedState* state_;
  std::vector<pid_t> pids_;
};

}  // namespace slimexx::dist
