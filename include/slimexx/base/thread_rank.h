// Ranks that are threads of one process: by this number their logs and timings are kept apart.
// Where every rank is a process, it is 0 everywhere.
#pragma once

namespace slimexx {

// The rank that the calling thread works for. A thread does not inherit it from the one that starts
// it: pass it on, if it logs or times anything.
int thread_rank();

// Sets it for the calling thread until the end of the scope.
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
