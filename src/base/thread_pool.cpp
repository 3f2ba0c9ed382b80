#include "slimexx/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace slimexx {
namespace {

thread_local bool inside_parallel_for = false;

int cores_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// One loop at a time: the caller publishes it, takes part, and waits for the workers to leave it.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads) : num_threads_(num_threads) {
    for (int i = 1; i < num_threads; ++i)
      workers_.emplace_back([this](std::stop_token s) { work(s); });
  }
  ~ThreadPool() {
    {
      // Under the lock, or a worker between its look at the token and its sleep misses the call.
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& w : workers_) w.request_stop();
    }
    wake_.notify_all();
  }
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

  void work(std::stop_token stop) {
    uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return stop.stop_requested() || generation_ != seen; });
        if (stop.stop_requested()) return;
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
  int active_ = 0;
  uint64_t generation_ = 0;
  std::exception_ptr error_;
  std::vector<std::jthread> workers_;  // last: joined before the rest goes
};

std::unique_ptr<ThreadPool>& pool() {
  static auto instance = std::make_unique<ThreadPool>(cores_of_process());
  return instance;
}

}  // namespace

void set_num_threads(int num_threads) {
  if (pool()->size() != std::max(1, num_threads)) {
    pool().reset();
    pool() = std::make_unique<ThreadPool>(std::max(1, num_threads));
  }
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
