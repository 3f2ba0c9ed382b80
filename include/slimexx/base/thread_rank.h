// The rank of the calling thread, if ranks are threads of one process; separates the logs and
// timings of ranks. 0 if every rank is a process.
#pragma once

namespace slimexx {

// The rank that the calling thread works for. New threads do not inherit it: pass it on with a
// ThreadRankScope if they log or time anything.
int thread_rank();

// Sets the calling thread's rank until the end of the scope.
class ThreadRankScope {
 public:
  explicit ThreadRankScope(int rank);
  ~ThreadRankScope();
  ThreadRankScope(const ThreadRankScope&) = delete;
  ThreadRankScope& operator=(const ThreadRankScope&) = delete;

 private:
  int previous_;
};

}  // namespace slimexx
