// Detects whether threads of this process are at work, from /proc.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "slimexx/base/activity.h"

namespace slimexx::dist {

pid_t own_tid();

class ThreadWork {
 public:
  // Whether any thread worked since the last call. A thread is at work if it runs or is ready to
  // run, or is inside a system call, except calls that only wait for other threads, for time, or
  // for data on a pipe or socket. So waiting for a disk, a driver or a child process counts as
  // work. So does any state that cannot be read. Threads in `left_out` do not count.
  bool has_worked(std::span<const pid_t> left_out);

 private:
  std::map<pid_t, uint64_t> ticks_;  // CPU time by thread, at the last call
};

// Maintains Activity's `looks` and `work` for the ranks of this process.
class OwnLooks {
 public:
  // Adds a rank of this process; `tid` is its thread.
  void add_rank(pid_t tid, Activity* activity) { ranks_.push_back({tid, activity}); }
  // Records one more look. The calling thread does not count as work. Neither does the thread of a
  // rank in a call, because MPI busy-waits there.
  void note();

 private:
  struct Rank {
    pid_t tid;
    Activity* activity;
  };
  std::vector<Rank> ranks_;
  ThreadWork threads_;
  int64_t num_outside_waits_ = 0;
};

}  // namespace slimexx::dist
