#include "slimexx/base/thread_pool.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "slimexx/base/error.h"

namespace slimexx {
namespace {

thread_local bool inside_parallel_for = false;

int cores_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Runs one loop at a time: the caller publishes it, takes part, and waits for the workers to leave
// it.
//
// No thread waits forever, for these reasons. All awaited state (generation_, stopping_, active_)
// changes only under mutex_, before the notify. A waiter checks this state under mutex_, atomically
// with going to sleep. So either the check sees a change, or the notify after the change wakes the
// waiter. Every worker leaves every loop once: active_ starts at the number of workers, and the
// next loop starts only at active_ == 0. So between loops no worker is inside a loop, and seen ==
// generation_ for all. A worker also leaves the loop if its body throws. A pool is destroyed
// between loops, when its workers sleep or are about to check.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads) : num_threads_(num_threads) {
    workers_.reserve(static_cast<size_t>(num_threads - 1));
    try {
      for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      end_workers();
      throw Error(ErrorCode::kEnvironment,
                  fmt::format("cannot start thread {} of {}: {}", workers_.size() + 1,
                              num_threads - 1, e.code().message()),
                  "allow more threads (ulimit -u, or the container's limit), or run on fewer cores "
                  "(taskset)");
    } catch (...) {
      end_workers();
      throw;
    }
  }
  ~ThreadPool() { end_workers(); }
  int size() const { return num_threads_; }

  void run(int64_t num_chunks, int64_t chunk, int64_t n,
           const std::function<void(int64_t, int64_t)>& body) {
    std::lock_guard<std::mutex> one_loop(caller_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      body_ = &body;
      num_chunks_ = num_chunks;
      chunk_ = chunk;
      n_ = n;
      next_ = 0;
      error_ = nullptr;
      active_ = num_threads_ - 1;
      ++generation_;
    }
    wake_.notify_all();
    take_chunks();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return active_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void take_chunks() {
    inside_parallel_for = true;
    for (int64_t c = next_.fetch_add(1); c < num_chunks_; c = next_.fetch_add(1)) {
      try {
        (*body_)(c * chunk_, std::min(n_, (c + 1) * chunk_));
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
    inside_parallel_for = false;
  }

  void end_workers() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  void work() {
    uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
      }
      take_chunks();
      std::lock_guard<std::mutex> lock(mutex_);
      if (--active_ == 0) done_.notify_one();
    }
  }

  const int num_threads_;
  std::mutex caller_, mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t num_chunks_ = 0, chunk_ = 0, n_ = 0;
  std::atomic<int64_t> next_{0};
  int active_ = 0;  // workers still in the loop
  uint64_t generation_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

// A forked child has the pool's memory but not its workers: waiting for them, in a loop or the
// destructor, would never end. So the child gets a pool of one thread.
void leave_workers_to_the_parent();

std::unique_ptr<ThreadPool>& pool() {
  static std::unique_ptr<ThreadPool> instance = [] {
    pthread_atfork(nullptr, nullptr, leave_workers_to_the_parent);
    return std::make_unique<ThreadPool>(cores_of_process());
  }();
  return instance;
}

void leave_workers_to_the_parent() {
  [[maybe_unused]] static ThreadPool* left;  // still referenced, so not reported as a leak
  left = pool().release();
  pool() = std::make_unique<ThreadPool>(1);
}

}  // namespace

void set_num_threads(int num_threads) {
  const int wanted = std::max(1, num_threads);
  if (pool()->size() == wanted) return;
  pool() = std::make_unique<ThreadPool>(
      1);  // ends the old workers first: two pools may exceed the system's limit
  if (wanted > 1) pool() = std::make_unique<ThreadPool>(wanted);
}

int num_threads() { return pool()->size(); }

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  const int64_t threads = inside_parallel_for ? 1 : pool()->size();
  const int64_t chunks =
      std::min<int64_t>(threads * 4, (n + grain - 1) / std::max<int64_t>(1, grain));
  if (threads == 1 || chunks <= 1) {
    body(0, n);
    return;
  }
  const int64_t chunk = (n + chunks - 1) / chunks;
  pool()->run((n + chunk - 1) / chunk, chunk, n, body);
}

}  // namespace slimexx
