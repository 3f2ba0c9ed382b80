// Whether threads of this process are at work, as Linux knows it, and that its watch looks.
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
  // Since the last call. A thread that runs, or could if a processor were free, is at work, and so
  // is one within a system call but those that only wait for other threads, for time, or for a pipe
  // or socket to be read: what a disk, a driver or a child process takes long for is work. What
  // cannot be found out is taken for work, too. Threads of `left_out` do not count.
  bool has_worked(std::span<const pid_t> left_out);

 private:
  std::map<pid_t, uint64_t> ticks_;  // processor time by thread, at the last call
};

// What the watch of a process tells of it: Activity's looks and work.
class OwnLooks {
 public:
  // A rank of this process, by its thread.
  void add_rank(pid_t tid, Activity* activity) { ranks_.push_back({tid, activity}); }
  // One more look, by the calling thread, which is no one's work. Nor is what a rank does in a
  // call: MPI waits there at full speed.
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
